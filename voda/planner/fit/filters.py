"""What kube-scheduler's filters say of nodes and a pod: NodeAffinity (with nodeSelector) and TaintToleration.

Each requirement is asked once of all nodes: the nodes that meet it are a set (bit n of an integer: node n), and what a
pod requires is made of such sets. So many terms, or nodes that differ in all their labels, cost little.

Rules: pure; as Kubernetes 1.37 reads them, and what its API server would not take matches nothing. What is left of a
node's resources for workers (NodeResourcesFit) is in `node_fit`.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, reduce
from itertools import accumulate, compress, count
from operator import and_, or_
from typing import Final

from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration
from voda.domain.reasons.nodes import NotTolerated, OtherLabel

_NAME: Final = "metadata.name"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST: Final = 2**63 - 1


class NodeFilters:
    """What the labels, names and taints of nodes say of pods."""

    def __init__(self, nodes: Sequence[Node], needs: Iterable[PodNeeds]) -> None:
        """Take the nodes, and all needs that are asked for."""
        self._all = (1 << len(nodes)) - 1
        self._labels = {
            key: _Label([node.labels.get(key) for node in nodes]) for key in labels_found(labels_named(needs), nodes)
        }
        self._absent = _Label([None] * len(nodes))
        self._names = _Label([node.name for node in nodes])
        self._tainted: dict[tuple[Taint, ...], int] = defaultdict(int)
        for at, node in enumerate(nodes):
            if node.taints:
                self._tainted[node.taints] |= 1 << at
        expelling = {taints: tuple(each for each in taints if each.effect == "NoExecute") for taints in self._tainted}
        self._expelling = {taints: found for taints, found in expelling.items() if found}

    def refused(self, needs: PodNeeds) -> Mapping[int, NotTolerated | OtherLabel]:
        """Return the places of the nodes whose taints, labels or names keep such a pod off -> why, by place."""
        found: dict[int, NotTolerated | OtherLabel] = {}
        left, tolerated = self._all, _Tolerated(needs.tolerations)
        for taints, nodes in self._tainted.items():
            if (taint := tolerated.first_other(taints)) is not None:
                found.update(
                    dict.fromkeys(_places(nodes), NotTolerated(key=taint.key, value=taint.value, effect=taint.effect))
                )
                left &= ~nodes
        for key, value in needs.selector.items():
            requirement, label = Requirement(key=key, values=(value,)), self._labels.get(key, self._absent)
            met = label.meeting(requirement)
            found.update(_others(left & ~met, requirement, label))
            left &= met
        if needs.terms is not None:
            outside = left & ~reduce(or_, map(self._meeting, needs.terms), 0)
            found.update(self._outside(outside, needs.terms))
        return dict(sorted(found.items()))

    def expelled(self, needs: PodNeeds) -> Sequence[int]:
        """Return the places of the nodes where such a pod may not even stay: it does not tolerate a taint NoExecute."""
        if not self._expelling:
            return []
        tolerated = _Tolerated(needs.tolerations)
        return [
            at
            for taints, expelling in self._expelling.items()
            if tolerated.first_other(expelling) is not None
            for at in _places(self._tainted[taints])
        ]

    def _requirements(self, term: NodeTerm) -> Iterator[tuple[Requirement, "_Label", int]]:
        """Yield what a term requires, of which label or of the name, and the nodes that meet it."""
        for requirement in term.labels:
            label = self._labels.get(requirement.key, self._absent)
            yield requirement, label, label.meeting(requirement)
        for requirement in term.fields:
            yield requirement, self._names, self._names.meeting(requirement) if requirement.key == _NAME else 0

    def _meeting(self, term: NodeTerm) -> int:
        is_empty = not (term.labels or term.fields)
        return 0 if is_empty else reduce(and_, (met for _, _, met in self._requirements(term)), self._all)

    def _outside(self, nodes: int, terms: Sequence[NodeTerm]) -> Iterator[tuple[int, OtherLabel]]:
        """Yield nodes that meet no term, with the first requirement of the first term that they do not meet."""
        others = max(0, len(terms) - 1)
        for requirement, label, met in self._requirements(terms[0]) if nodes and terms else ():
            yield from _others(nodes & ~met, requirement, label, others)
            nodes &= met
        for at in _places(nodes):
            yield at, OtherLabel(key="", operator="In", others=others)


class _Label:
    """One label of all nodes, or their names."""

    def __init__(self, found: Sequence[str | None]) -> None:
        self.found = found
        self._all = (1 << len(found)) - 1
        self._with: dict[str, int] = defaultdict(int)
        for at, value in enumerate(found):
            if value is not None:
                self._with[value] |= 1 << at

    def meeting(self, requirement: Requirement) -> int:
        """Return the nodes that meet a requirement."""
        values = requirement.values
        match requirement.operator:
            case "In":
                return self._among(values)
            case "NotIn":
                return self._all & ~self._among(values) if values else 0
            case "Exists":
                return 0 if values else self._any
            case "DoesNotExist":
                return 0 if values else self._all & ~self._any
            case "Gt" | "Lt" as operator if len(values) == 1 and (bound := _number(values[0])) is not None:
                numbers, up_to = self._numbers
                if operator == "Lt":
                    return up_to[bisect_left(numbers, bound)]
                return up_to[-1] & ~up_to[bisect_right(numbers, bound)]
            case _:
                return 0

    def _among(self, values: Iterable[str]) -> int:
        nodes = 0
        for value in values:
            nodes |= self._with.get(value, 0)
        return nodes

    @cached_property
    def _any(self) -> int:
        return reduce(or_, self._with.values(), 0)

    @cached_property
    def _numbers(self) -> tuple[Sequence[int], Sequence[int]]:
        """Its values that are numbers, ascending, and the nodes with one of the first 0, 1, 2, ... of them."""
        known = ((_number(value), nodes) for value, nodes in self._with.items())
        pairs = sorted((number, nodes) for number, nodes in known if number is not None)
        return [number for number, _ in pairs], [*accumulate((nodes for _, nodes in pairs), or_, initial=0)]


def labels_named(needs: Iterable[PodNeeds]) -> set[str]:
    """Return the labels on which it depends which nodes take such pods; there may be thousands that no node has."""
    named: set[str] = set()
    for each in needs:
        named.update(each.selector)
        for term in each.terms or ():
            named.update([requirement.key for requirement in term.labels])
    return named


def labels_found(named: Set[str], nodes: Iterable[Node]) -> set[str]:
    """Return those of these labels that a node has."""
    return {key for node in nodes for key in node.labels.keys() & named}


def names_node(needs: PodNeeds) -> bool:
    """Return whether it depends on a node's name whether it takes such a pod."""
    return any(term.fields for term in needs.terms or ())


class _Tolerated:
    """The taints that a pod tolerates, looked up: it costs the same for one toleration as for many."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._keys: set[tuple[str, str]] = set()
        self._values: set[tuple[str, str, str]] = set()
        self._bounds: list[Toleration] = []
        for each in tolerations:
            match each.operator:
                case "Exists":
                    self._keys.add((each.key, each.effect))
                case "" | "Equal":
                    self._values.add((each.key, each.effect, each.value))
                case _:
                    self._bounds.append(each)

    def first_other(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first taint that is not tolerated."""
        return next((taint for taint in taints if not self._tolerates(taint)), None)

    def _tolerates(self, taint: Taint) -> bool:
        # An empty key or effect of a toleration stands for all.
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect) in self._keys or (key, effect, taint.value) in self._values:
                    return True
        return any(
            each.effect in ("", taint.effect)
            and each.key in ("", taint.key)
            and _compares(each.operator, taint.value, each.value)
            for each in self._bounds
        )


def _others(nodes: int, requirement: Requirement, label: _Label, others: int = 0) -> Iterator[tuple[int, OtherLabel]]:
    """Yield nodes with what they have of a label instead of what is required."""
    known: dict[str | None, OtherLabel] = {}
    for at in _places(nodes):
        found = label.found[at]
        if (why := known.get(found)) is None:
            why = known[found] = OtherLabel(
                key=requirement.key,
                operator=requirement.operator,
                values=requirement.values,
                found=found,
                others=others,
            )
        yield at, why


def _places(nodes: int) -> Sequence[int]:
    """Return the places of a set of nodes, ascending."""
    return [*compress(count(), f"{nodes:b}"[::-1].encode().replace(b"0", b"\0"))]


def _compares(operator: str, found: str, bound: str) -> bool:
    """Return whether one number is above another (Gt) or below it (Lt); False where either is none."""
    left, right = _number(found), _number(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else operator == "Lt" and left < right


def _number(text: str) -> int | None:
    value = int(text) if _INTEGER.fullmatch(text) else None
    return value if value is not None and -_LARGEST - 1 <= value <= _LARGEST else None
