"""Every small fault that can be put into the syntax trees of drjax, and a sample of them."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("core", "dr", "attacks", "bounds")
DIED = ("failed", "too long", "crashed")

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
COMPARED |= {after: before for before, after in COMPARED.items()}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
COMPUTED |= {after: before for before, after in COMPUTED.items()} | {ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
COMPUTED |= {ast.Mod: ast.FloorDiv}
CALLED = {"min": "max", "minimum": "maximum", "sum": "mean", "any": "all", "floor": "ceil", "zeros": "ones"}
CALLED |= {"argmin": "argmax", "logical_and": "logical_or", "cumsum": "cumprod"}
CALLED |= {after: before for before, after in CALLED.items()}
DROPPED = ("clip", "abs", "sqrt", "sorted")

UNMUTATED = ("annotation", "returns", "decorator_list", "type_comment", "msg")
"""Fields of the syntax tree that say nothing about what is computed."""

TUNING = re.compile(r"_?(MAX|MOST|CHUNK|BLOCK|TILE|BUDGET|LEAST_FREE)")


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: Its module, dotted.
        line: Where it is.
        column: Where it is.
        operator: Kind of fault.
        before: Source that is replaced.
        after: What it is replaced by.
        place: Number of the replaced node among the module's.
    """

    module: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    place: int

    @property
    def name(self) -> str:
        """One line that says it all."""
        return f"{self.module}:{self.line}:{self.column} {self.operator}: {self.before} -> {self.after}"

    @property
    def package(self) -> str:
        """Which of the packages it is in."""
        return self.module.split(".")[1]


def mutants_of(source: str, module: str) -> list[Mutant]:
    """Every fault that can be put into a module."""
    found = []
    for place, (node, _) in enumerate(_places(ast.parse(source))):
        for operator, after in _variants(node):
            before = ast.unparse(node.test) if operator == "guard" else ast.unparse(node)
            texts = (" ".join(before.split()), " ".join(ast.unparse(after).split()))
            found.append(Mutant(module, node.lineno, node.col_offset, operator, *texts, place))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module's syntax tree with the fault."""
    tree = ast.parse(source)
    node, put = list(_places(tree))[mutant.place]
    after = next(after for operator, after in _variants(node) if operator == mutant.operator)
    if isinstance(node, ast.If):
        node.test = after
    else:
        put(after)
    return ast.fix_missing_locations(tree)


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants drawn by chance: packages in turn, as even as can be over files and kinds of faults."""
    drawn = []
    for package in PACKAGES:
        chance = random.Random(f"{seed} {package}")
        files = sorted((root / "drjax" / package).rglob("*.py"))
        chance.shuffle(files)
        piles = [_shuffled(mutants_of(path.read_text(), _dotted(path, root)), chance) for path in files]
        rounds = [pile[i] for i in range(max(map(len, piles))) for pile in piles if i < len(pile)]
        drawn.append(rounds[: count // len(PACKAGES)])
    return [mutant for in_turn in zip(*drawn, strict=True) for mutant in in_turn]


def path_of(module: str, root: Path) -> Path:
    """The file of a module."""
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def table(rows: list[dict[str, Any]], equivalent: dict[str, str]) -> str:
    """What came of the mutants, as Markdown; of several rows of one, the first is the first go and the last counts."""
    first, last = {row["name"]: row for row in reversed(rows)}, {row["name"]: row for row in rows}
    lines = [
        "| package | mutants | failed | too long or crashed | survived | of it equivalent | share | at first |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for package in (*PACKAGES, "all"):
        names = [name for name in last if package in (name.split(".")[1].partition(":")[0], "all")]
        told = [name for name in names if last[name]["outcome"] != "passed" or name not in equivalent]
        failed = sum(last[name]["outcome"] == "failed" for name in names)
        died = sum(last[name]["outcome"] in DIED for name in names)
        at_first = sum(first[name]["outcome"] in DIED for name in names)
        shares = [f"{100 * n / len(told):.1f}%" if told else "" for n in (died, at_first)]
        counts = (len(names), failed, died - failed, len(names) - died, len(names) - len(told), *shares)
        lines.append(f"| {package} | {' | '.join(map(str, counts))} |")
    survivors = [name for name, row in sorted(last.items()) if row["outcome"] == "passed"]
    left = [f"- `{name}`" for name in survivors if name not in equivalent]
    alike = [f"- `{name}`: {equivalent[name]}" for name in survivors if name in equivalent]
    return "\n".join([*lines, "", "Survivors:", "", *(left or ["none"]), "", "Equivalent:", "", *(alike or ["none"])])


def _shuffled(mutants: list[Mutant], chance: random.Random) -> list[Mutant]:
    """In random order; the next kind is drawn evenly among those that are left, or constants would come first."""
    by_operator: dict[str, list[Mutant]] = {}
    for mutant in chance.sample(mutants, len(mutants)):
        by_operator.setdefault(mutant.operator, []).append(mutant)
    drawn = []
    while by_operator:
        operator = chance.choice(sorted(by_operator))
        drawn.append(by_operator[operator].pop())
        if not by_operator[operator]:
            del by_operator[operator]
    return drawn


def _places(node: ast.AST) -> Iterator[tuple[Any, Callable[[ast.AST], None]]]:
    """Nodes that may be replaced, each with what puts another one there."""
    for field, value in ast.iter_fields(node):
        if field in UNMUTATED:
            continue
        for i, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_said(child):
                continue

            def put(after: ast.AST, field: str = field, value: Any = value, i: int = i) -> None:
                if isinstance(value, list):
                    value[i] = after
                else:
                    setattr(node, field, after)

            yield child, put
            yield from _places(child)


def _is_said(node: ast.AST) -> bool:
    """Is it for people to read, or the size of a piece of work, where any value is right?"""
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__repr__", "__str__", "__dir__")
    if isinstance(node, ast.Call):
        return _called(node) in ("warn", "_warn", "print")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and TUNING.match(target.id) is not None
    return isinstance(node, ast.Raise | ast.JoinedStr)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _variants(node: Any) -> Iterator[tuple[str, ast.expr]]:
    """What a node is replaced by, each with the kind of fault; of an `if` it is the condition."""
    match node:
        case ast.If(body=[ast.Raise()], orelse=[]):
            yield "guard", ast.Constant(False)
        case ast.Compare(left=left, ops=[first, *rest], comparators=comparators) if type(first) in COMPARED:
            yield "compare", ast.Compare(left, [COMPARED[type(first)](), *rest], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED and not (
            _is_text(left) | _is_text(right)
        ):
            yield "arithmetic", ast.BinOp(left, COMPUTED[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield "boolean", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "minus", operand
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(value / 2 if value else 1.0)
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower is not None and not isinstance(lower, ast.Constant):
                yield "slice from", ast.Slice(ast.BinOp(lower, ast.Add(), ast.Constant(1)), upper, step)
            if upper is not None and not isinstance(upper, ast.Constant):
                yield "slice to", ast.Slice(lower, ast.BinOp(upper, ast.Sub(), ast.Constant(1)), step)
        case ast.Call(func=func, args=args, keywords=keywords):
            name = _called(node)
            if name in CALLED and isinstance(func, ast.Name):
                yield "call", ast.Call(ast.Name(CALLED[name], ast.Load()), args, keywords)
            elif name in CALLED and isinstance(func, ast.Attribute):
                yield "call", ast.Call(ast.Attribute(func.value, CALLED[name], ast.Load()), args, keywords)
            elif name in DROPPED and args:
                yield "dropped call", args[0]
            elif name == "range" and len(args) < 3 and not isinstance(args[-1], ast.Constant):
                yield "range", ast.Call(func, [*args[:-1], ast.BinOp(args[-1], ast.Sub(), ast.Constant(1))], keywords)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or isinstance(getattr(node, "value", None), str)


def _dotted(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
