"""One machine whose GPUs jobs of virtual clusters share: the real planner, differences and devices, without processes.

Workers that are told to leave do so when a test says it; what starts takes devices as on a real machine.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.unit.planner.virtual_clusters.pools import replanned
from tests.unit.planner.virtual_clusters.sharing_pools import GPU, a_sharing_pool
from voda.cluster.local.devices import Device, Slots
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused
from voda.domain.gpus import Gpus
from voda.domain.job import Phase
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.domain.state import ClusterState
from voda.reconcilers.diff import diff

NODE = "n1"


@dataclass
class SharingMachine:
    """A machine of four GPUs, and the state as its log would have it."""

    state: ClusterState
    slots: Slots = field(
        default_factory=lambda: Slots([Device(name=str(gpu), memory_mib=GPU.memory_mib) for gpu in range(4)])
    )
    held: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    """Job -> worker -> the devices that it has whole."""
    leaving: set[tuple[str, int]] = field(default_factory=set)

    def plan(self) -> None:
        self.state = replanned(self.state)

    def actions(self) -> Sequence[Action]:
        return diff(self.state, self._observed())

    def act(self, action: Action) -> None:
        """Carry out one action, as far as the machine can now."""
        job_id = action.job_id
        workers = self.held.get(job_id, {})
        if isinstance(action, HaltJob | StopJob):
            self.leaving |= {(job_id, index) for index in workers}
        elif (job_id, 0) not in self.leaving:
            self.leaving |= {(job_id, index) for index in workers if index >= len(action.nodes)}
            with suppress(ActionRefused):
                self._start(action, [index for index in range(len(action.nodes)) if index not in workers])
        self._record()

    def leave(self) -> None:
        """Let all leave that are to leave."""
        for job_id, index in self.leaving:
            self.slots.release(job_id, index, self.held[job_id].pop(index))
            if not self.held[job_id]:
                del self.held[job_id]
                self.slots.release_share(job_id)
        self.leaving = set()
        self._record()

    def settle(self) -> None:
        """Plan, act and leave until nothing is left to do."""
        for _ in range(12):
            self.plan()
            for action in self.actions():
                self.act(action)
            self.leave()
        assert not self.actions(), "all is as planned"

    def gpus(self) -> Mapping[int, set[str]]:
        """Return GPU -> the jobs that have a part of it."""
        found: dict[int, set[str]] = {}
        for uid, pod in self.slots.shares().pods.items():
            found.setdefault(next(iter(pod.containers.values())).gpus[0], set()).add(uid)
        return found

    def _start(self, action: StartJob | ResizeJob, new: Sequence[int]) -> None:
        job_id = action.job_id
        spec = self.state.jobs[job_id].spec
        if spec.share is None:
            taken = self.slots.take(job_id, new, spec.gpus_per_replica, barred=(), node=NODE)
        elif new and isinstance(action, StartJob):
            name = self.slots.choose_for_share(job_id, spec.share, barred=(), node=NODE, beside=action.beside)
            self.slots.hold_share(job_id, f"default/{job_id}", spec.share, name)
            taken = {0: ()}
        else:
            return
        if taken:
            self.held.setdefault(job_id, {}).update(taken)

    def _observed(self) -> Observed:
        workers = {job_id: dict.fromkeys(sorted(of_job), NODE) for job_id, of_job in self.held.items()}
        every = {**self.state.outlived, **self.state.jobs}
        return Observed(
            nodes={NODE: replace(self.state.nodes[NODE], foreign_gpus=Gpus(0))},
            workers=workers,
            gpus_per_replica={job_id: every[job_id].spec.gpus_per_replica for job_id in workers},
            shares={NODE: self.slots.shares()},
        )

    def _record(self) -> None:
        """Let the log know what the machine shows."""
        account = self.slots.shares()
        node = replace(self.state.nodes[NODE], foreign_gpus=Gpus(account.used_gpus()))
        jobs = {}
        for job_id, job in self.state.jobs.items():
            workers = dict.fromkeys(sorted(self.held.get(job_id, {})), NODE)
            jobs[job_id] = replace(job, workers=workers, phase=Phase.RUNNING if workers else Phase.WAITING)
        outlived = {job_id: job for job_id, job in self.state.outlived.items() if job_id in self.held}
        self.state = replace(self.state, jobs=jobs, nodes={NODE: node}, shares={NODE: account}, outlived=outlived)


def a_sharing_machine(quotas: Mapping[str, Mapping[str, int]]) -> SharingMachine:
    return SharingMachine(a_sharing_pool(quotas, gpus={NODE: 4}))
