"""Prints the figures of the house: lines, names that mean two things, crowded folders, large objects, imports.

Reads the sources of voda/ as text and imports nothing, so that a broken module is counted all the same.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.imports import Imports, imports_of

ROOT = Path(__file__).resolve().parents[1]
MOST_MODULES = 15
"""In one folder, `__init__` not counted."""
CENTRES = ("voda.planner.decide", "voda.application.submit_job")
"""Modules of the main walk: whoever changes one has to trust all that it imports."""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+")
_ENDING = re.compile(r"(?<=...)(ing|ed|es|s|d|e)$")


@dataclass(frozen=True)
class Classes:
    """The classes of the package, by module and name, and what each module imports."""

    nodes: Mapping[tuple[str, str], ast.ClassDef]
    imports: Mapping[str, Mapping[str, tuple[str, str]]]

    def twice(self) -> dict[str, list[str]]:
        """Return the modules of every class name that stands in more than one, with or without an underscore."""
        modules = defaultdict(list)
        for module, name in self.nodes:
            modules[name.lstrip("_")].append(module)
        return {name: sorted(places) for name, places in sorted(modules.items()) if len(places) > 1}

    def equal_words(self) -> list[list[str]]:
        """Return groups of names that are made of the same words: in another order, or another form of a word.

        A record and the collection of it in one module may differ by the last letter; names of one word do not count.
        """
        groups = defaultdict[tuple[str, ...], dict[str, str]](dict)
        for module, name in self.nodes:
            words = _WORD.findall(name.lstrip("_"))
            if len(words) > 1:
                groups[tuple(sorted(_stem(word) for word in words))][name.lstrip("_")] = module
        return sorted(sorted(group) for group in groups.values() if not _is_one_name(group))

    def methods(self, module: str, name: str) -> set[str]:
        """Return the names of a class's methods, with those that it inherits from classes of the package."""
        node = self.nodes.get((module, name))
        if node is None:
            return set()
        own = {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
        bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
        names = [base.id for base in bases if isinstance(base, ast.Name)]
        places = (self.imports[module].get(base, (module, base)) for base in names)
        return own.union(*(self.methods(*place) for place in places))

    def largest(self) -> list[tuple[int, str]]:
        """Return every class with its number of methods, largest first."""
        counted = ((len(self.methods(module, name)), f"{module}.{name}") for module, name in self.nodes)
        return sorted(counted, reverse=True)


def sources() -> list[Path]:
    """Return the modules of the package."""
    return sorted((ROOT / "voda").rglob("*.py"))


def lines(folder: str = "voda") -> int:
    """Return how many lines the package has, or another folder's Python."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py"))


def words_of_docs() -> int:
    """Return how many words the pages under docs/ have."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))


@cache
def trees() -> Mapping[str, ast.Module]:
    """Read the package: module -> its tree."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in sources()
    }


def longest_functions() -> list[tuple[int, str]]:
    """Return every function with its number of lines, signature and docstring included, longest first."""
    counted = (
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}.{node.name}")
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return sorted(counted, reverse=True)


@cache
def classes() -> Classes:
    """Read all classes of the package."""
    nodes, imports = {}, {}
    for module, tree in trees().items():
        nodes.update({(module, node.name): node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)})
        imports[module] = {name: place for node in ast.walk(tree) for name, place in _imported(node)}
    return Classes(nodes, imports)


@cache
def imports() -> Imports:
    """Read what all modules of the package import."""
    return imports_of(trees())


def lines_loaded(module: str) -> int:
    """Return the lines of a module and of all that it imports, transitively."""
    lengths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in sources()
    }
    return sum(len(lengths[each].read_text(encoding="utf-8").splitlines()) for each in imports().reach(module))


def folders() -> dict[str, int]:
    """Return how many modules every folder has."""
    counts: dict[str, int] = defaultdict(int)
    for path in sources():
        counts[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    return counts


def _stem(word: str) -> str:
    return _ENDING.sub("", _ENDING.sub("", word.lower()))


def _is_one_name(group: Mapping[str, str]) -> bool:
    """Return whether these are one name, or that of a record and of the collection beside it."""
    return len(group) == 1 or (len({name.removesuffix("s") for name in group}) == 1 == len(set(group.values())))


def _imported(node: ast.AST) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield alias.asname or alias.name, (node.module, alias.name)


def main() -> None:
    """Print one line per figure; with `-v`, also what is behind it."""
    found, detailed = classes(), "-v" in sys.argv[1:]
    twice, crowded = found.twice(), {name: count for name, count in folders().items() if count > MOST_MODULES}
    most, largest = found.largest()[0]
    print(f"modules                        {len(sources())}")
    print(f"lines of voda/, of tests/      {lines()}, {lines('tests')}")
    for module in CENTRES:
        print(f"lines loaded by {module:<28} {lines_loaded(module)}")
    print(f"circles of imports             {len(imports().circles())}")
    print(f"class names that occur twice   {len(twice)}")
    print(f"class names of equal words     {len(found.equal_words())}")
    print(f"folders of more than {MOST_MODULES} modules {len(crowded)}")
    print(f"largest object, methods        {most} ({largest})")
    print("longest function, lines        {} ({})".format(*longest_functions()[0]))
    print(f"words of docs/                 {words_of_docs()}")
    if detailed:
        _print_details(found, crowded)


def _print_details(found: Classes, crowded: Mapping[str, int]) -> None:
    for circle in imports().circles():
        print(f"  circle: {', '.join(circle)}")
    for name, modules in found.twice().items():
        print(f"  {name}: {', '.join(modules)}")
    for group in found.equal_words():
        print(f"  equal words: {', '.join(group)}")
    for name, count in sorted(crowded.items()):
        print(f"  {name}: {count} modules")
    for count, name in found.largest()[:15]:
        print(f"  {name}: {count} methods")


if __name__ == "__main__":
    main()
