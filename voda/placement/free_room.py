"""What is left of nodes for workers: GPUs, and what is scarce beside them; where a job fits best, where is most room.

Rule: every answer depends on names and counts alone, never on the order in which nodes were given. Where nodes bound a
job by more than their GPUs, all are looked at at once; else `FreeGpus` knows the answer.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import demand_of
from voda.placement.free_gpus import FreeGpus
from voda.placement.scarce import ScarceResources

Ints = NDArray[np.int64]
_UNBOUND: Final = 1 << 62
"""Workers that a node takes which does not bound them, but by its GPUs."""
_NONE: Final[Mapping[str, int]] = {}


class FreeRoom:
    """What is left of nodes: `free`, node -> free GPUs >= 0, and `scarce` are taken over."""

    def __init__(self, free: dict[str, Gpus], scarce: ScarceResources) -> None:
        self.gpus, self.scarce = FreeGpus(free), scarce
        self._free = free
        self._names: list[str] = []
        """Sorted; made with what follows when a job is the first that nodes bound."""
        self._place: dict[str, int] = {}
        self._counts: Ints = np.empty(0, dtype=np.int64)
        """Free GPUs; shape (nodes,)."""
        self._left: dict[str, tuple[Ints, NDArray[np.bool_]]] = {}
        """Scarce resource -> what is left of it, and where it is scarce; shape (nodes,)."""
        self._fits: dict[tuple[int, int], Ints] = {}
        """Class of jobs that nodes refuse alike -> workers that each node takes; shape (nodes,)."""

    def take(self, job: Job, placed: Mapping[str, int]) -> None:
        """Use what workers of a job ask for; `placed` is node -> workers, negative numbers give it back."""
        for node, workers in placed.items():
            self.gpus.take(node, workers * job.spec.gpus_per_replica)
            self.scarce.take(job, node, workers)
            if (at := self._place.get(node)) is not None:
                self._counts[at] = self.gpus[node]
                for resource, amount in self.scarce.left.get(node, _NONE).items():
                    self._left[resource][0][at] = amount

    def takes(self, job: Job, node: str, own: int, workers: int) -> bool:
        """Return whether nothing but GPUs keeps a node, with `own` workers of the job, from taking so many in all."""
        if node in job.refusals and job.fits.get(node, 0) < workers:
            return False
        return self.scarce.most(job, node, workers - own) >= workers - own

    def more(self, job: Job, node: str, own: int) -> int | None:
        """Return how many more workers a node takes, with `own` there, by all but its GPUs; None: nothing bounds it."""
        most = job.fits.get(node, 0) - own if node in job.refusals else _UNBOUND
        most = self.scarce.most(job, node, most)
        return None if most == _UNBOUND else max(0, most)

    def has_room(self, job: Job) -> bool:
        """Return whether a node has room for one worker of a job."""
        return self.best_fit(job, 1) is not None

    def best_fit(self, job: Job, workers: int, own: Mapping[str, int] = _NONE) -> str | None:
        """Return the node with the fewest free GPUs that has as many as `workers` > 0 need, and takes so many; ties by
        name. `own` is node -> workers that it has already.
        """
        gpus = workers * job.spec.gpus_per_replica
        if self.gpus.most() < gpus:
            return None
        if (most := self._most(job, own)) is None:
            return self.gpus.best_fit(gpus)
        for node, there in own.items():
            if (at := self._place.get(node)) is not None:
                most[at] += there
        return self._first((self._counts >= gpus) & (most >= workers))

    def spread(self, job: Job, workers: int, own: Mapping[str, int], avoid: Iterable[str] = ()) -> Mapping[str, int]:
        """Use what workers need, or as many of them as fit; return node -> workers, on few nodes.

        Nodes to avoid get no more where they bound the job by more than GPUs; `own` is as for `best_fit`.
        """
        gpus, left, taken = job.spec.gpus_per_replica, workers, dict[str, int]()
        if (most := self._most(job, own)) is not None:
            for name in avoid:
                self._close(most, name)
        while left > 0:
            node = self._next(most, left, gpus)
            fitting = min(left, self.gpus[node] // gpus) if node else 0
            if node and most is not None:
                fitting = min(fitting, int(most[self._place[node]]))
                self._close(most, node)
            if node is None or not fitting:
                break
            self.take(job, {node: fitting})
            taken[node] = taken.get(node, 0) + fitting
            left -= fitting
        return taken

    def _next(self, most: Ints | None, workers: int, gpus: Gpus) -> str | None:
        """Return the node that is the best for so many workers, or else for some of them."""
        if most is None:
            return self.gpus.best_fit(workers * gpus) or self.gpus.roomiest()
        return self._first((self._counts >= workers * gpus) & (most >= workers)) or self._roomiest(most >= 1)

    def _close(self, most: Ints, node: str) -> None:
        """Have a node that bounds the job take no more."""
        at = self._place.get(node)
        if at is not None and most[at] < _UNBOUND:
            most[at] = 0

    def _first(self, is_one: NDArray[np.bool_]) -> str | None:
        """Return the node with the fewest free GPUs of these, ties by name."""
        if not is_one.any():
            return None
        return self._names[int(np.where(is_one, self._counts, _UNBOUND).argmin())]

    def _roomiest(self, is_one: NDArray[np.bool_]) -> str | None:
        """Return the node with the most free GPUs of these, at least one, ties by name."""
        counts = np.where(is_one, self._counts, 0)
        at = int(counts.argmax()) if len(counts) else 0
        return self._names[at] if len(counts) and counts[at] > 0 else None

    def _most(self, job: Job, own: Mapping[str, int]) -> Ints | None:
        """Return how many more workers each node takes by all but its GPUs, a new array; None: nothing bounds them."""
        if not (job.refusals or self.scarce.left):
            return None
        self._look_at_all()
        demand = [
            (resource, asked)
            for resource, asked in demand_of(job.spec.needs).items()
            if asked > 0 and resource in self._left
        ]
        if not (job.refusals or demand):
            return None
        most = self._fitting(job)
        for node, there in own.items():
            if node in job.refusals and (at := self._place.get(node)) is not None:
                most[at] -= there
        for resource, asked in demand:
            left, is_scarce = self._left[resource]
            np.minimum(most, left // asked, out=most, where=is_scarce)
        return most

    def _fitting(self, job: Job) -> Ints:
        key = id(job.refusals), id(job.fits)
        if (known := self._fits.get(key)) is None:
            known = self._fits[key] = np.full(len(self._names), _UNBOUND, dtype=np.int64)
            places = [at for node in job.refusals if (at := self._place.get(node)) is not None]
            known[places] = 0
            for node, workers in job.fits.items():
                if node in job.refusals and (at := self._place.get(node)) is not None:
                    known[at] = workers
        return known.copy()

    def _look_at_all(self) -> None:
        if self._names or not self._free:
            return
        self._names = sorted(self._free)
        self._place = {name: at for at, name in enumerate(self._names)}
        self._counts = np.array([self._free[name] for name in self._names], dtype=np.int64)
        lefts = [self.scarce.left.get(name, _NONE) for name in self._names]
        for resource in {resource for left in self.scarce.left.values() for resource in left}:
            amounts = np.array([left.get(resource, 0) for left in lefts], dtype=np.int64)
            self._left[resource] = amounts, np.array([resource in left for left in lefts])
