"""A placement in the making: the steps that `steady` is made of.

Rule: every step leaves a placement that fits its nodes.
"""

from collections.abc import Mapping, Sequence

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.placement.carry_over import keep
from voda.placement.free_gpus import FreeGpus
from voda.placement.order import by_size, per_node
from voda.placement.rendezvous_anchor import anchor


class Draft:
    """The placement in the making."""

    def __init__(self, view: ClusterState, replicas: Mapping[str, int]) -> None:
        kept = keep(view, replicas)
        self.placed = kept.whole
        self._view = view
        self._replicas = replicas
        self._free = FreeGpus(kept.free)
        self._short = kept.short
        self._may_span = dict.fromkeys(kept.spanning, True)
        """Spanning job -> whether it did so before: then coming together must pay."""

    def serve_short(self) -> bool:
        """Give every job that lacks workers what fits, largest first; return whether anything changed."""
        changed = False
        for job_id in by_size(self._view, self._short, self._replicas):
            changed |= self._seat_on_one(job_id) or self._seat_on_many(job_id)
        return changed

    def consolidate(self) -> bool:
        """Bring spanning jobs together, largest first; return whether anything changed."""
        # At least one worker has to move, so on a full cluster there is nothing to be asked.
        if not self._may_span or not self._free.most():
            return False
        changed = False
        for job_id in by_size(self._view, self._may_span, self._replicas):
            changed |= self._bring_together(job_id)
        return changed

    def _seat_on_one(self, job_id: str) -> bool:
        """Place the job whole: where it is, else on the node that fits best."""
        workers, gpus = self._replicas[job_id], self._gpus(job_id)
        own = per_node(self._short[job_id].values())
        if len(own) > 1:
            return False
        refusals = self._view.jobs[job_id].refusals
        home = next(iter(own), None)
        if home is None or home in refusals or self._free[home] < (workers - own[home]) * gpus:
            if home is not None and self._held(job_id, self._short[job_id].get(0)):
                return False
            home = self._free.best_fit(workers * gpus, refusals)
        if home is None:
            return False
        self._move(own, {home: workers}, gpus)
        self.placed[job_id] = (home,) * workers
        del self._short[job_id]
        return True

    def _seat_on_many(self, job_id: str) -> bool:
        """Place what is missing: on the job's own nodes, then on as few others as will do."""
        kept, gpus, job = self._short[job_id], self._gpus(job_id), self._view.jobs[job_id]
        own = per_node(kept.values())
        added = self._seats(job, own, self._replicas[job_id] - len(kept))
        size = len(kept) + len(added)
        if job.refusals and (astray := [index for index in kept if index >= size and kept[index] in job.refusals]):
            # They would come back under another index, and be refused.
            self._move(per_node([*added, *(kept.pop(index) for index in astray)]), {}, gpus)
            self._seat_on_many(job_id)
            return True
        nodes = _filled(kept, added)
        if len(nodes) < job.spec.min_replicas:
            self._move(per_node(nodes), {}, gpus)
            self.placed.pop(job_id, None)
            self._short[job_id] = {}
            return bool(kept)
        self.placed[job_id] = nodes
        self._short[job_id] = dict(enumerate(nodes))
        if len(nodes) == self._replicas[job_id]:
            del self._short[job_id]
        if len(own) <= 1 and len(set(nodes)) > 1:
            self._may_span[job_id] = False
        return bool(added)

    def _seats(self, job: Job, own: Mapping[str, int], missing: int) -> list[str]:
        """Take GPUs for the missing workers, or for as many of them as fit."""
        seats: list[str] = []
        gpus, refusals = job.spec.gpus_per_replica, job.refusals
        for node in sorted(own.keys() - refusals.keys(), key=lambda node: (-own[node], node)):
            seats += self._taken(node, missing - len(seats), gpus)
        while missing > len(seats):
            left = missing - len(seats)
            roomy = self._free.best_fit(left * gpus, refusals) or self._free.roomiest(refusals)
            added = self._taken(roomy, left, gpus) if roomy else []
            if not added:
                break
            seats += added
        return seats

    def _taken(self, node: str, most: int, gpus: Gpus) -> list[str]:
        fitting = min(most, self._free[node] // gpus)
        self._free.take(node, fitting * gpus)
        return [node] * fitting

    def _bring_together(self, job_id: str) -> bool:
        nodes, gpus = self.placed.get(job_id, ()), self._gpus(job_id)
        if self._free.most() < gpus:
            return False
        own = per_node(nodes)
        if len(own) <= 1:
            del self._may_span[job_id]
            return False
        home = self._home(job_id, own, nodes)
        if home is None or (self._may_span[job_id] and not self._pays(job_id, len(nodes), home in own)):
            return False
        self._move(own, {home: len(nodes)}, gpus)
        self.placed[job_id] = (home,) * len(nodes)
        if job_id in self._short:
            self._short[job_id] = dict(enumerate(self.placed[job_id]))
        del self._may_span[job_id]
        return True

    def _home(self, job_id: str, own: Mapping[str, int], nodes: Sequence[str]) -> str | None:
        """Return the node with room for all, the one with most of them already if there is a choice."""
        workers, gpus, refusals = len(nodes), self._gpus(job_id), self._view.jobs[job_id].refusals
        roomy = [
            node for node, there in own.items() if node not in refusals and self._free[node] >= (workers - there) * gpus
        ]
        if (held := self._held(job_id, nodes[0])) is not None:
            return held if held in roomy else None
        home = min(roomy, key=lambda node: (-own[node], node), default=None)
        return home or self._free.best_fit(workers * gpus, refusals)

    def _held(self, job_id: str, first: str | None) -> str | None:
        """Return the node of worker 0 in this draft if it is not to leave it."""
        return first if first is not None and anchor(self._view, job_id) == first else None

    def _pays(self, job_id: str, workers: int, some_stay: bool) -> bool:
        """Whether the seconds saved by not spanning exceed those lost by the move."""
        estimate = self._view.estimates.get(job_id)
        if estimate is None:
            return True
        left_s = estimate.time_left_s(workers)
        saved_s = estimate.span_penalty * left_s if estimate.span_penalty > 0 else 0.0
        if not self._view.jobs[job_id].workers:
            # Planned, but not started yet: nothing is lost.
            return saved_s > 0
        # A job that moves whole starts its launcher anew as well.
        return saved_s > estimate.resize_cost_s * (1 if some_stay else 2)

    def _move(self, old: Mapping[str, int], new: Mapping[str, int], gpus: Gpus) -> None:
        for node, workers in old.items():
            self._free.take(node, -workers * gpus)
        for node, workers in new.items():
            self._free.take(node, workers * gpus)

    def _gpus(self, job_id: str) -> Gpus:
        return self._view.jobs[job_id].spec.gpus_per_replica


def _filled(kept: Mapping[int, str], added: list[str]) -> tuple[str, ...]:
    """Return the nodes by index: holes are filled first, by the highest indices where nothing else is left."""
    size = len(kept) + len(added)
    spare = iter([*added, *(node for index, node in kept.items() if index >= size)])
    return tuple(kept[index] if index in kept else next(spare) for index in range(size))
