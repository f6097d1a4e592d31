"""The book of GPUs that may be shared: what is left of each, which have room for a part, and which one gets it.

Rule: a part comes to the fullest GPU that has room for it, so that others stay whole; of equal ones to the first.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from voda.domain.gpus import GpuRequest
from voda.domain.shares import GpuRemainder

K = TypeVar("K", bound=int | str)
_Place = tuple[bool, int, int, K]


class OpenGpus(Generic[K]):
    """GPUs to which parts may come, by a key; finding one costs O(log n) where memory does not decide."""

    def __init__(self, gpus: Iterable[tuple[K, GpuRemainder]] = ()) -> None:
        self._left = dict(gpus)
        self._order = sorted(_place(key, left) for key, left in self._left.items())
        """The fullest first; those of which nobody has any come last."""

    def __len__(self) -> int:
        return len(self._left)

    def put(self, key: K, left: GpuRemainder) -> None:
        """Let so much be left of a GPU, known or new."""
        if key in self._left:
            self._order.pop(bisect_left(self._order, _place(key, self._left[key])))
        self._left[key] = left
        insort(self._order, _place(key, left))

    def take(self, key: K, request: GpuRequest) -> None:
        """Take a part, or all, of a GPU that has room for it."""
        self.put(key, self._left[key].less(request))

    def fitting(self, request: GpuRequest) -> Iterator[K]:
        """Yield the GPUs that have room for a part, the best one first; none is to be put meanwhile."""
        for is_whole in (False, True):
            first = bisect_left(self._order, (is_whole, request.least_milli, request.memory_mib))
            for other, _, _, key in islice(self._order, first, None):
                if other != is_whole:
                    break
                if self._left[key].fits(request):
                    yield key

    def amounts(self) -> tuple[tuple[bool, int, int], ...]:
        """Return what is left: whether nobody has any of the GPU, milli and MiB; the fullest first."""
        return tuple((is_whole, milli, memory_mib) for is_whole, milli, memory_mib, _ in self._order)

    def copy(self) -> "OpenGpus[K]":
        """Return the GPUs as they are now."""
        return OpenGpus(self._left.items())


def _place(key: K, left: GpuRemainder) -> _Place[K]:
    return left.is_whole, left.milli, left.memory_mib, key
