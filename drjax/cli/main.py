"""Entry point: the sub-commands by name, and how an error reaches the user.

Example:
    >>> from drjax.cli import main
    >>> try:
    ...     main(["embed", "--method", "nothing"])
    ... except SystemExit as end:
    ...     end.code
    2
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tyro.extras import SubcommandApp

import drjax
from drjax.cli import (
    bound_commands,
    commands,
    doctor,
    embedding_commands,
    errors,
    membership_commands,
    model_commands,
    property_commands,
    release_commands,
    sweep_commands,
)
from drjax.core import memory, programs

DESCRIPTION = "Measure what an adversary recovers from published embeddings, networks and statistics."

SPELLINGS = {"--attack": "--attacks"}
"""Options of audits that are understood by another name too: one attack reads better without the s."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs `drjax`; exits with 0, or with 2 and one line on standard error for anything a user can mend.

    See `drjax.cli.errors` for what that is; a mistake of drjax itself shows a traceback.

    `drjax attack model` exits with 1 where it finds nothing that it would rely on.
    """
    with memory.task():
        _main(argv)


def _main(argv: Sequence[str] | None) -> None:
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_audit = bool(arguments) and arguments[0].startswith("audit")
    if is_audit:
        arguments = [SPELLINGS.get(word, word) for word in arguments]
    if arguments[:1] == ["sweep"] and arguments[1:2] != ["status"]:
        arguments[1:1] = ["run"]
    if arguments in (["--version"], ["-V"]):
        print(f"drjax {drjax.__version__}")
        return
    try:
        programs.keep_programs()
        _app().cli(prog="drjax", description=DESCRIPTION, args=arguments or ["--help"])
    except KeyboardInterrupt:
        kept = "; what is finished is in the run folder, if it came so far: go on with --resume" if is_audit else ""
        print(f"drjax: interrupted{kept}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (drjax data list | head): nobody is left to report it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        line = errors.one_line(error)
        if line is None:
            raise
        print(f"drjax: error: {line}", file=sys.stderr)
        sys.exit(2)


def _app() -> SubcommandApp:
    app, attack, data, bound, release, sweep = (SubcommandApp() for _ in range(6))
    app.command(commands.audit)
    attack.command(name="embedding")(embedding_commands.embedding)
    attack.command(name="model")(model_commands.attack_model)
    attack.command(name="membership")(membership_commands.attack_membership)
    attack.command(name="property")(property_commands.attack_property)
    app.command(name="audit-model")(model_commands.audit_model)
    app.command(attack, name="attack", help="Attack a release: reconstruct a record, find members, or predict a share.")
    sweep.command(name="run")(sweep_commands.sweep)
    sweep.command(name="status")(sweep_commands.sweep_status)
    app.command(sweep, name="sweep", help="Audit with settings crossed, on any number of workers.")
    app.command(commands.embed)
    app.command(name="defend")(commands.defend_map)
    data.command(name="list")(commands.list_data)
    data.command(name="info")(commands.data_info)
    data.command(name="plan")(commands.plan_data)
    data.command(name="fetch")(commands.fetch_data)
    app.command(data, name="data", help="Say what a table holds; list, describe and download the named data sets.")
    for name in ("rero", "epsilon", "noise", "tradeoff"):
        bound.command(name=name)(getattr(bound_commands, f"bound_{name}"))
    for command in (release_commands.pca, release_commands.synthetic, release_commands.schema):
        release.command(command)
    release.command(name="map")(release_commands.release_a_map)
    app.command(
        release,
        name="release",
        help="Publish components, synthetic records or a map of these with differential privacy.",
    )
    app.command(doctor.doctor)
    app.command(bound, name="bound", help="Bound what any adversary achieves under differential privacy.")
    return app
