"""Whether an answer, and what it changed, agree with HiveD's.

Exact only where HiveD's own tests assert it. Everywhere else which of equally good nodes is taken is open: then kind,
reason, shape, victims, states of groups and numbers of free cells count. Victims: HiveD names those of one node of
several, taken at random; voda names all. A group that HiveD leaves `BeingPreempted` after the preemption was withdrawn
is `Allocated` again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.conformance.hived.vectors import Answer, Group, Operation
from tests.conformance.hived.wording import bad_cells, free_cells, group_state
from voda.cells.book import CellBook

_OPEN: Final = ("physicalPlacement",)
"""What of a group's state depends on the choice among equals."""


def answer_differences(operation: Operation, ours: Answer) -> list[str]:
    """Return what differs between the answers, as clauses."""
    expected = operation.expect
    if ours["kind"] != expected["kind"]:
        return [f"answer {_short(ours)}, HiveD {_short(expected)}"]
    match expected["kind"]:
        case "bind":
            return _bind_differences(operation, ours)
        case "preempt":
            return _victim_differences(operation, ours)
        case "wait" | "error":
            reasons = {each.get("reason") for each in (expected, *operation.alternatives)}
            return [] if ours["reason"] in reasons else [f"reason {ours['reason']}, HiveD {expected['reason']}"]
    return []


def _short(answer: Answer) -> str:
    parts = (answer.get(key) for key in ("kind", "node", "leafCells", "victims", "reason"))
    return " ".join(str(part) for part in parts if part is not None)


def _bind_differences(operation: Operation, ours: Answer) -> list[str]:
    keys = ["chain", "shape"]
    if operation.asserted_by_hived_suite:
        keys += ["node", "leafCells"]
    expected = operation.expect
    different = [f"{key} {ours[key]}, HiveD {expected[key]}" for key in keys if ours[key] != expected[key]]
    quotas = set(expected["preassignedCellTypes"])
    if set(ours["preassignedCellTypes"]) != quotas:
        different.append(f"quota cell {ours['preassignedCellTypes']}, HiveD {sorted(quotas)}")
    return different


def _victim_differences(operation: Operation, ours: Answer) -> list[str]:
    victims = set(ours["victims"])
    answers = (operation.expect, *operation.alternatives)
    seen = {victim for answer in answers if answer["kind"] == "preempt" for victim in answer["victims"]}
    most = set(operation.expect.get("victimsSubsetOf", victims if operation.nondeterministic else seen))
    if seen <= victims <= most | seen:
        return []
    return [f"victims {sorted(victims)}, HiveD {sorted(seen)}"]


@dataclass
class Expected:
    """The state that HiveD's answers add up to."""

    groups: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    free: Any = None
    """None: unknown, as it varied between runs."""
    bad: Any = None

    @classmethod
    def loaded(cls, group: Group) -> "Expected":
        """Return the state after loading."""
        load = group.load
        return cls(free=load.free_cells_by_chain_level, bad=load.bad_preassigned_virtual_cells)

    def advance(self, operation: Operation) -> None:
        """Add what an operation changed."""
        after = operation.after
        for name, state in after.groups_changed.items():
            if state is None:
                self.groups.pop(name, None)
            else:
                self.groups[name] = state
        if after.free_cells_by_chain_level is not None or operation.nondeterministic_state:
            self.free = after.free_cells_by_chain_level
        if after.bad_preassigned_virtual_cells is not None or operation.nondeterministic_state:
            self.bad = after.bad_preassigned_virtual_cells

    def differences(self, book: CellBook) -> list[str]:
        """Return what differs in the book, as clauses."""
        ours = {name: group_state(book, gang) for name, gang in book.gangs.items()}
        different = [f"group {name}: {text}" for name in ours.keys() | self.groups for text in self._group(name, ours)]
        if self.free is not None and free_cells(book) != self.free:
            different.append(f"free cells {free_cells(book)}, HiveD {self.free}")
        if self.bad is not None and bad_cells(book) != self.bad:
            different.append(f"bad cells {bad_cells(book)}, HiveD {self.bad}")
        return sorted(different)

    def _group(self, name: str, ours: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
        if name not in ours or name not in self.groups:
            yield "it is there" if name in ours else "it is gone"
            return
        mine, expected = ours[name], self.groups[name]
        for key in sorted((mine.keys() | expected.keys()) - set(_OPEN)):
            if mine.get(key) != expected.get(key) and not (key == "state" and self._was_withdrawn(mine, expected)):
                yield f"{key} {mine.get(key)}, HiveD {expected.get(key)}"
        if _leafs(mine) != _leafs(expected):
            yield f"has {_leafs(mine)} leafs, HiveD {_leafs(expected)}"

    def _was_withdrawn(self, mine: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
        """Return whether HiveD's state is that of a preemption which nobody asks for any longer."""
        preempting = any(
            state["state"] == "Preempting" and set(state["physicalPlacement"]) & set(expected["physicalPlacement"])
            for state in self.groups.values()
        )
        return (mine["state"], expected["state"]) == ("Allocated", "BeingPreempted") and not preempting


def _leafs(state: Mapping[str, Any]) -> int:
    return sum(len(devices) for devices in state["physicalPlacement"].values())
