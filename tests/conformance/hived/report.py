"""Runs groups and says which agree with HiveD."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.hived.comparison import Expected, answer_differences
from tests.conformance.hived.driver import driver
from tests.conformance.hived.vectors import Group, Vectors
from voda.domain.errors import InvalidInput


@dataclass(frozen=True)
class GroupResult:
    """What came of one group."""

    group: Group
    differences: Sequence[tuple[int, str]]
    """(index of the operation, -1 = loading; what differs)."""

    @property
    def holds(self) -> bool:
        """Whether it agrees with HiveD, or records what HiveD is not to be matched in."""
        return self.group.is_weakness or not self.differences

    @property
    def held_operations(self) -> int:
        """Operations that agree; all of a weakness."""
        different = {index for index, _ in self.differences if index >= 0}
        return len(self.group.ops) - (0 if self.group.is_weakness else len(different))

    def lines(self) -> list[str]:
        """Return the group's line, and one for every difference."""
        verdict = "ok" if self.holds else "DIFFERS"
        if self.group.is_weakness:
            verdict = "ok, ours beside HiveD's:" if self.differences else "ok, as HiveD"
        details = [f"    {self._operation(index)}: {text}" for index, text in self.differences]
        return [f"{self.group.name}: {verdict}", *details]

    def _operation(self, index: int) -> str:
        if index < 0:
            return "load"
        operation = self.group.ops[index]
        return f"{index} {operation.op} {operation.pod or operation.node or operation.config}"


def run_group(configs: Any, group: Group) -> GroupResult:
    """Perform a group's operations and compare after each."""
    try:
        driven = driver(configs, group.config, nodes_start_bad=group.nodes_start_bad)
    except InvalidInput as error:
        return GroupResult(group, [] if group.load.kind == "error" else [(-1, f"refused: {error}")])
    if group.load.kind == "error":
        return GroupResult(group, [(-1, f"accepted, HiveD refuses it: {group.load.reason}")])
    expected = Expected.loaded(group)
    differences = [(-1, text) for text in expected.differences(driven.book)]
    for index, operation in enumerate(group.ops):
        answer = driven.perform(operation)
        expected.advance(operation)
        differences += [(index, text) for text in answer_differences(operation, answer)]
        differences += [(index, text) for text in expected.differences(driven.book)]
    return GroupResult(group, differences)


def run_vectors(vectors: Vectors) -> list[GroupResult]:
    """Run all groups of a file."""
    return [run_group(vectors.configs, group) for group in vectors.groups]


def summary(results: Sequence[GroupResult]) -> str:
    """Return the last line."""
    held = sum(result.holds for result in results)
    operations = sum(len(result.group.ops) for result in results)
    held_operations = sum(result.held_operations for result in results)
    return f"{held} of {len(results)} groups, {held_operations} of {operations} operations"
