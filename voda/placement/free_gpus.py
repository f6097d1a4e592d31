"""Free GPUs by node, and the two questions placers ask: where does this fit best, where is most room.

Rule: every answer depends on names and counts alone, never on the order in which nodes were given.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain

from voda.domain.gpus import NO_GPUS, Gpus


class FreeGpus:
    """Counts of free GPUs, kept as one sorted list of nodes per count.

    A question costs O(GPUs of the largest node), a change O(log nodes) comparisons. The lists are made when
    the first question is asked, because most re-plans ask none. `free`, node -> free GPUs >= 0, is taken over.
    """

    __slots__ = ("_by_count", "_of")

    def __init__(self, free: dict[str, Gpus]) -> None:
        self._of = free
        self._by_count: list[list[str]] = []

    def __getitem__(self, node: str) -> Gpus:
        """Return the free GPUs of a node; 0 for one that is not there."""
        return self._of.get(node, NO_GPUS)

    def take(self, node: str, gpus: Gpus) -> None:
        """Use GPUs of a node; a negative count gives them back."""
        before = self._of[node]
        after = self._of[node] = before - gpus
        assert after >= 0, f"node {node}: {gpus} GPUs asked for, {before} free"
        if self._by_count:
            nodes = self._by_count[before]
            del nodes[bisect_left(nodes, node)]
            self._file(node, after)

    def best_fit(self, gpus: Gpus) -> str | None:
        """Return the node with the fewest free GPUs that has `gpus` > 0 of them; ties by name."""
        return next((nodes[0] for nodes in self._lists()[gpus:] if nodes), None)

    def with_at_least(self, gpus: Gpus) -> Iterator[str]:
        """Yield the nodes that have `gpus` free, those with the fewest first; nothing may change meanwhile."""
        return chain.from_iterable(self._lists()[gpus:])

    def with_most(self) -> Iterator[str]:
        """Yield the nodes that have any free, those with the most first; nothing may change meanwhile."""
        return chain.from_iterable(reversed(self._lists()[1:]))

    def roomiest(self) -> str | None:
        """Return the node with the most free GPUs, at least one; ties by name."""
        return next(self.with_most(), None)

    def most(self) -> Gpus:
        """Return the free GPUs of the roomiest node; 0 where there is none."""
        lists = self._lists()
        return Gpus(next((count for count in range(len(lists) - 1, 0, -1) if lists[count]), 0))

    def _lists(self) -> list[list[str]]:
        if not self._by_count:
            self._by_count.append([])
            for node in sorted(self._of):
                self._file(node, self._of[node])
        return self._by_count

    def _file(self, node: str, count: Gpus) -> None:
        while len(self._by_count) <= count:
            self._by_count.append([])
        insort(self._by_count[count], node)
