"""How tight audits are: `audit_mechanism` on the scalar Gaussian mechanism, over mu.

    python -m bench.audits

README.md beside this file says what is measured.
"""

from __future__ import annotations

import time
from pathlib import Path

import jax
import numpy as np
import tyro

from bench import harness
from drjax.bounds import auditing, tradeoff

MUS = (0.15, 0.2, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 9.0, 10.0)


def main(*, n: int = 100_000, audits: int = 40, out: Path = harness.RESULTS / "audits.jsonl") -> None:
    """Audits, prints a table and appends the rows.

    Args:
        n: Runs on each input.
        audits: With a key of their own each, at every mu.
        out: JSON-lines file that the rows are added to.
    """
    print("| mu | mu_lower / mu: mean | least | largest | epsilon_lower / epsilon: mean | refuted | s an audit |")
    print("|---|---|---|---|---|---|---|")
    for mu in MUS:
        claim, begun, found = tradeoff.Gaussian(mu), time.perf_counter(), []
        for seed in range(audits):
            found.append(
                auditing.audit_mechanism(
                    jax.random.key(seed), lambda key, x: x + jax.random.normal(key), 0.0, mu, claim=claim, n=n
                )
            )
        seconds = (time.perf_counter() - begun) / audits
        shares = np.array([audit.mu_lower for audit in found]) / mu
        epsilon = float(np.mean([audit.epsilon_lower for audit in found])) / found[0].claim_epsilon
        refuted = sum(audit.is_refuted for audit in found)
        values = (float(shares.mean()), float(shares.min()), float(shares.max()), epsilon)
        print(f"| {mu:g} | {' | '.join(f'{v:.3f}' for v in values)} | {refuted} of {audits} | {seconds:.2f} |")
        names = ("mu_share_mean", "mu_share_least", "mu_share_largest", "epsilon_share_mean")
        fields = dict(zip(names, values, strict=True)) | {"refuted": refuted, "seconds": seconds}
        harness.append_row(out, harness.make_row("audits/gaussian", {"mu": mu, "n": n, "audits": audits}, fields))


if __name__ == "__main__":
    tyro.cli(main)
