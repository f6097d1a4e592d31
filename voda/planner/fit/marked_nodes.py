"""The nodes that take no pod of a class, by labels and taints; nodes that are alike are asked about once.

Rule: what is found of a class depends on the nodes alone, whichever other classes there are.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from voda.domain.node import Node, PodNeeds
from voda.domain.reasons.nodes import NodeRefusal
from voda.planner.fit.filters import NodeFilters, labels_found, labels_named, names_node


class Closed(Struct, frozen=True, kw_only=True):
    """The nodes that take no pod of a class."""

    refusals: Mapping[str, NodeRefusal]
    """In the order of the nodes."""
    at: NDArray[np.bool_]
    """Whether a node is one of them; shape (nodes,)."""
    expelling: frozenset[str]
    """Nodes on which such a pod may not even stay."""


class MarkedNodes:
    """What labels and taints of some nodes say of classes of pods."""

    def __init__(self, nodes: Sequence[Node], needs: Collection[PodNeeds], before: "MarkedNodes | None" = None) -> None:
        """Take the nodes, and needs that are asked for; `heeds` says of which others it may be asked.

        Where these nodes were asked `before`, an answer that is as it was is the very same.
        """
        self._labels, self._is_by_name = labels_named(needs), any(map(names_node, needs))
        keys = sorted(labels_found(self._labels, nodes))
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for at, node in enumerate(nodes):
            labels = node.labels
            alike[(node.name if self._is_by_name else "", node.taints, *[labels.get(key) for key in keys])].append(at)
        self._names = [node.name for node in nodes]
        self._class_of = np.empty(len(nodes), dtype=np.int64)
        for number, same in enumerate(alike.values()):
            self._class_of[same] = number
        self._count = len(alike)
        self._filters = NodeFilters([nodes[same[0]] for same in alike.values()], needs)
        self._found: dict[bytes, Closed] = {}
        self._before = {} if before is None else before._found

    def heeds(self, needs: PodNeeds) -> bool:
        """Return whether all that such a pod asks of labels and names is looked at."""
        return labels_named([needs]) <= self._labels and (self._is_by_name or not names_node(needs))

    def of(self, needs: PodNeeds) -> Closed:
        """Return the nodes that take no pod with these needs: the very same for needs that differ in requests alone."""
        if (found := self._found.get(needs.filter_key)) is None:
            refused, expelled = self._filters.refused(needs), self._filters.expelled(needs)
            at = self._at(refused)
            classes = self._class_of.tolist()
            refusals = {self._names[place]: refused[classes[place]] for place in np.flatnonzero(at).tolist()}
            expelling = frozenset(self._names[place] for place in np.flatnonzero(self._at(expelled)).tolist())
            found = self._before.get(needs.filter_key)
            if found is None or found.refusals != refusals or found.expelling != expelling:
                found = Closed(refusals=refusals, at=at, expelling=expelling)
            self._found[needs.filter_key] = found
        return found

    def keep(self, needs: Iterable[PodNeeds]) -> None:
        """Forget what was found of all others."""
        keys = {each.filter_key for each in needs}
        self._found = {key: found for key, found in self._found.items() if key in keys}

    def _at(self, classes: Iterable[int]) -> NDArray[np.bool_]:
        is_one = np.zeros(self._count, dtype=np.bool_)
        is_one[[*classes]] = True
        return is_one[self._class_of]
