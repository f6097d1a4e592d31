"""Every test asserts something, by itself or through what it calls."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CHECKS = frozenset({"raises", "fail", "warns", "raise_for_status"})
"""Calls that fail where something is not as expected, beside `assert`."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(parent: ast.AST) -> Iterator[Function]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function):
            yield node
        if isinstance(node, Function | ast.ClassDef):
            yield from _functions(node)


def _contents(function: Function) -> tuple[set[str], bool]:
    """Return what a function calls, and whether it asserts anything itself."""
    names, asserts = set[str](), False
    for node in ast.walk(function):
        asserts = asserts or isinstance(node, ast.Assert)
        if isinstance(node, ast.Call):
            names.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
    return names, asserts


@pytest.mark.slow
def test_tests_when_read_assert_something() -> None:
    called, asserting, tests = defaultdict[str, set[str]](set), set(CHECKS), list[tuple[str, set[str]]]()
    for path in sorted(TESTS.rglob("*.py")):
        for function in _functions(ast.parse(path.read_text("utf-8"))):
            names, asserts = _contents(function)
            if asserts:
                asserting.add(function.name)
            elif function.name.startswith("test_"):
                tests.append((f"{path.name}:{function.lineno} {function.name}", names))
            called[function.name] |= names
    while found := {name for name, names in called.items() if name not in asserting and names & asserting}:
        asserting |= found
    assert [test for test, names in tests if not names & asserting] == []
