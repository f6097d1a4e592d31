"""Counts what a module of the package drags in, and finds modules that import each other in a circle.

An import within a function counts, and so does the `__init__` of every package on the way: Python runs it.
"""

import ast
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Imports:
    """Which modules each module imports; a package goes by its name without `__init__`."""

    at_work: Mapping[str, Set[str]]
    """When it runs, packages on the way included."""
    named: Mapping[str, Set[str]]
    """Written in it, those for types alone (`TYPE_CHECKING`) too."""

    def reach(self, module: str) -> set[str]:
        """Return the modules that are loaded with one, itself included."""
        seen, open_modules = set[str](), [module]
        while open_modules:
            if (each := open_modules.pop()) not in seen:
                seen.add(each)
                open_modules.extend(self.at_work[each])
        return seen

    def circles(self) -> list[list[str]]:
        """Return every largest set of modules that reach each other (Tarjan 1972)."""
        order: dict[str, int] = {}
        lowest: dict[str, int] = {}
        path: list[str] = []
        found: list[list[str]] = []

        def visit(module: str) -> None:
            order[module] = lowest[module] = len(order)
            path.append(module)
            for other in sorted(self.named[module]):
                if other not in order:
                    visit(other)
                if other in path:
                    lowest[module] = min(lowest[module], lowest[other])
            if lowest[module] == order[module]:
                start = path.index(module)
                found.append(sorted(path[start:]))
                del path[start:]

        for module in self.named:
            if module not in order:
                visit(module)
        return sorted(circle for circle in found if len(circle) > 1)


def imports_of(trees: Mapping[str, ast.Module]) -> Imports:
    """Read what modules import; `trees` are theirs by dotted name, as `house.trees` returns them."""
    modules = {name.removesuffix(".__init__"): tree for name, tree in trees.items()}
    at_work, named = {}, {}
    for module, tree in modules.items():
        loaded = {name for name in _imported(tree, modules, types=False) if name in modules}
        ways = {module, *loaded}
        at_work[module] = loaded | {parent for way in ways for parent in _parents(way) if parent in modules}
        named[module] = {name for name in _imported(tree, modules, types=True) if name in modules} - {module}
    return Imports(at_work, named)


def _imported(node: ast.AST, modules: Container[str], *, types: bool) -> Iterator[str]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module:
            # Of a package: a module in it, or a name.
            within = [f"{part.module}.{alias.name}" for alias in part.names]
            yield from (name if name in modules else part.module for name in within)
        elif types or not _is_for_types(part):
            yield from _imported(part, modules, types=types)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))
