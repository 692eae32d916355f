"""The public names of drjax: those in the `__all__` of its modules, and those that the pages use."""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import drjax

ROOT = Path(__file__).resolve().parents[2]
FROM = re.compile(r"^[ >.]*from (drjax[\w.]*) import (\([^)]*\)|.*)$", re.M)
DOTTED = re.compile(r"\bdrjax(?:\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        module: The module that has it.
        name: Name of the object there.
        value: The object.
    """

    module: str
    name: str
    value: object

    @property
    def full(self) -> str:
        """The module and the name."""
        return f"{self.module}.{self.name}"

    @property
    def package(self) -> str:
        """The package of drjax that it is in, at most two levels below drjax, or drjax itself."""
        words = self.module.split(".")
        inner = ".".join(words[:3])
        return inner if hasattr(modules().get(inner), "__path__") else ".".join(words[:2])


@functools.cache
def modules() -> dict[str, ModuleType]:
    """Every module of drjax that can be imported without another package than the required ones, by name."""
    found = {"drjax": drjax}
    for entry in pkgutil.walk_packages(drjax.__path__, "drjax."):
        found[entry.name] = importlib.import_module(entry.name)
    return found


def page_files() -> list[Path]:
    """Markdown files that say how drjax is used."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts]
    return top + sorted(pages)


def split(dotted: str, known: dict[str, ModuleType]) -> tuple[str, str]:
    """The module of a dotted name and what follows it, up to the next dot."""
    words = dotted.split(".")
    at = next(n for n in range(len(words), 0, -1) if ".".join(words[:n]) in known)
    return ".".join(words[:at]), ".".join(words[at : at + 1])


def mentions(text: str, known: dict[str, ModuleType]) -> Iterator[tuple[str, str]]:
    """Modules and names of drjax that a page names; a module alone comes with an empty name."""
    for found in FROM.finditer(text):
        for name, alias in re.findall(r"(\w+)(?: as (\w+))?", found[2].partition("#")[0]):
            home, attribute = split(f"{found[1]}.{name}", known)
            yield home, attribute
            if not attribute:
                for used in re.findall(rf"(?<![\w.]){alias or name}\.(\w+)", text):
                    yield home, used
    for found in DOTTED.finditer(text):
        yield split(found[0], known)


def own(module: ModuleType) -> list[str]:
    """Functions and classes that a module without `__all__` defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def public_names() -> list[Name]:
    """All public names, those of a module together, modules by name."""
    known = modules()
    names = {name: list(dict.fromkeys(getattr(module, "__all__", ()))) for name, module in known.items()}
    for page in page_files():
        for module, name in mentions(page.read_text(encoding="utf-8"), known):
            if name and hasattr(known[module], name) and not inspect.ismodule(getattr(known[module], name)):
                names[module].append(name)
            elif not name and not names[module] and not hasattr(known[module], "__path__"):
                names[module] += own(known[module])
    return [
        Name(module, name, getattr(known[module], name))
        for module in sorted(names)
        for name in dict.fromkeys(names[module])
        if not name.startswith("_")
    ]


def key_of(value: object) -> object:
    """What two public names of one object have in common."""
    return id(value) if callable(value) or isinstance(value, dict) else object()


def homes(names: list[Name]) -> dict[str, Name]:
    """The name under which each name is described, by full name: an object of several names is described once.

    A verb is described as of `drjax`, all else as of the outermost package below it.
    """

    def order(name: Name) -> tuple[bool, bool, int, str]:
        is_verb = getattr(name.value, "__module__", "").startswith("drjax.verbs")
        return name.module == "drjax" and not is_verb, name.module == "drjax.verbs", name.full.count("."), name.full

    by_object: dict[object, list[Name]] = {}
    for name in names:
        by_object.setdefault(key_of(name.value), []).append(name)
    return {name.full: min(group, key=order) for group in by_object.values() for name in group}


def uses(names: list[Name]) -> dict[str, list[Path]]:
    """Pages that name each public name, under any of its names, by the name that it is described under."""
    known, home = modules(), homes(names)
    found: dict[str, list[Path]] = {}
    for page in page_files():
        said = {f"{module}.{name}" for module, name in mentions(page.read_text(encoding="utf-8"), known)}
        for full in sorted({home[name].full for name in said if name in home}):
            found.setdefault(full, []).append(page)
    return found
