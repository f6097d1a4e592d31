"""Which jobs share which GPU: by the account, by the plan in force, else as they fit.

1. Jobs that share a GPU by the account stay together; so do those that the plan in force has on one, and that may
still start there.
2. One that waits comes to the fullest GPU of its owner that has room, else to one more.
3. Jobs that back off come last: what the plan gives them others may have.

Rules: pure; jobs come together only in one virtual cluster, all of them under its guarantee or none.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest
from voda.domain.job import Job
from voda.domain.shares import GpuRemainder, SharingNode
from voda.domain.state import ClusterState
from voda.sharing import OpenGpus

_SUFFIX: Final = "+gpu"
"""No id of a job has it."""
Owner = tuple[str, bool, str]
"""Virtual cluster, whether under its guarantee, pinned cell; alike for all jobs of a pool without virtual clusters."""


@dataclass(kw_only=True)
class SharedGpu:
    """A GPU, and the jobs that have a part of it or are to have one."""

    owner: Owner
    """Whose it is; jobs of others are there from a time before these virtual clusters."""
    node: str = ""
    """Empty: it has none yet."""
    devices: tuple[tuple[int, ...], ...] = ()
    """What the plan in force calls it; empty: nothing."""
    number: int | None = None
    """On its node, by the account; None: it is not there yet."""
    memory_mib: int
    used: tuple[int, int] = (0, 0)
    """Milli and MiB that are taken, or are to be."""
    jobs: list[Job] = field(default_factory=list)
    is_at_work: bool = False
    """Whether one of its jobs runs there."""
    is_beside_others: bool = False
    """Whether pods that are no jobs have parts of it."""

    @property
    def job_id(self) -> str:
        """The id of its stand-in."""
        return f"{self.jobs[0].spec.job_id}{_SUFFIX}"

    @property
    def needed_mib(self) -> int:
        """Memory that its jobs ask for."""
        return sum(request_of(job).memory_mib for job in self.jobs)

    @property
    def left(self) -> GpuRemainder:
        """What is left of it; one without a node counts as whole, so that others come before it."""
        milli, memory_mib = MILLI_PER_DEVICE - self.used[0], self.memory_mib - self.used[1]
        return GpuRemainder(milli=milli, memory_mib=memory_mib, is_whole=not self.node)

    def add(self, job: Job) -> None:
        request = request_of(job)
        self.jobs.append(job)
        self.used = self.used[0] + request.milli, self.used[1] + request.memory_mib


def request_of(job: Job) -> GpuRequest:
    """Return which part of a GPU a job asks for."""
    assert job.spec.share is not None, "it asks for a part of a GPU"
    return job.spec.share


def least_memory_mib(view: ClusterState) -> Mapping[str, int]:
    """Return node -> the memory of its smallest GPU; below 0 where it has none to share."""
    accounts = ((name, view.shares.get(name)) for name in view.nodes)
    return {
        name: -1 if account is None else min((gpu.memory_mib for gpu in account.devices), default=-1)
        for name, account in accounts
    }


def shared_gpus(
    view: ClusterState, sizes: Mapping[str, int], known: Set[str], last: Set[str] = frozenset()
) -> list[SharedGpu]:
    """Return the GPUs of all jobs that ask for a part of one, but those that are being canceled.

    Args:
        view: has the plan in force and the accounts.
        sizes: as `least_memory_mib` has them.
        known: all jobs of the pool: what others have of a GPU stays theirs.
        last: jobs that others go before for a while.
    """
    draft = _Draft(view, sizes, known)
    jobs = sorted((job for job in view.jobs.values() if job.spec.share and not job.is_canceling), key=_rank)
    for are_last in (False, True):
        those = [job for job in jobs if (job.spec.job_id in last and not draft.has_part(job)) == are_last]
        for job in [job for job in those if not draft.keep(job)]:
            draft.join(job)
    return draft.gpus


def is_open(view: ClusterState, name: str) -> bool:
    """Return whether new parts of GPUs may come to a node."""
    node = view.nodes.get(name)
    return node is not None and node.is_open and name not in view.closed_nodes


def _rank(job: Job) -> tuple[bool, int, float, str]:
    return not job.workers, -job.spec.priority, job.submitted_at, job.spec.job_id


class _Draft:
    """The GPUs as they fill."""

    def __init__(self, view: ClusterState, sizes: Mapping[str, int], known: Set[str]) -> None:
        self.gpus: list[SharedGpu] = []
        self._view = view
        self._sizes = sizes
        self._known = known
        self._is_divided = view.cells is not None
        self._by_account: dict[tuple[str, int], SharedGpu] = {}
        self._by_plan: dict[tuple[str, tuple[tuple[int, ...], ...]], SharedGpu] = {}
        self._open: dict[Owner, OpenGpus[int]] | None = None
        """The GPUs to which jobs of an owner may come, by their places in `gpus`; None: nobody has come to one."""

    def has_part(self, job: Job) -> bool:
        """Return whether a job has its part, as far as the account of its node says."""
        nodes = self._view.plan.placement.get(job.spec.job_id)
        return nodes is not None and self._recorded(nodes[0], job) is not None

    def keep(self, job: Job) -> bool:
        """Leave a job on the GPU that it has, or that the plan has for it; return False where there is none."""
        view, job_id = self._view, job.spec.job_id
        nodes, devices = view.plan.placement.get(job_id), view.plan.devices.get(job_id, ())
        if nodes is None:
            return False
        node, number = nodes[0], self._recorded(nodes[0], job)
        planned = (node, devices) if devices and (job.workers or self._takes(node, job)) else None
        gpu = None
        if number is not None:
            gpu = self._by_account.get((node, number))
        elif planned is not None:
            gpu = self._by_plan.get(planned)
            if gpu is not None and not gpu.left.fits(request_of(job)):
                return False
        elif not job.workers:
            return False
        if gpu is None:
            gpu = self._new(job, node, devices, number)
        gpu.add(job)
        # One that moves is at work elsewhere.
        gpu.is_at_work = gpu.is_at_work or node in job.workers.values()
        # Those who keep their GPUs come before all who look for one: then it is read once.
        self._open = None
        if number is not None:
            self._by_account[node, number] = gpu
        if planned is not None:
            self._by_plan.setdefault(planned, gpu)
        return True

    def join(self, job: Job) -> None:
        """Bring a job to the fullest GPU that has room for it, best to one that is there; else to one more."""
        request, there = request_of(job), self._of_owner(self._owner(job))
        places = (at for at in there.fitting(request) if not (name := self.gpus[at].node) or self._takes(name, job))
        at = next(places, None)
        if at is None:
            fitting = [size for size in self._sizes.values() if size >= request.memory_mib]
            at = len(self.gpus)
            self.gpus.append(SharedGpu(owner=self._owner(job), memory_mib=min(fitting, default=0)))
        self.gpus[at].add(job)
        there.put(at, self.gpus[at].left)

    def _new(self, job: Job, node: str, devices: tuple[tuple[int, ...], ...], number: int | None) -> SharedGpu:
        account = self._view.shares.get(node)
        size, used, others = self._sizes.get(node, -1), (0, 0), list[GpuRequest]()
        if account is not None and number is not None:
            size = account.devices[number].memory_mib if number < len(account.devices) else 0
            others = list(_others_of(account, number, self._known))
            used = sum(each.milli_each for each in others), sum(each.memory_mib for each in others)
        self.gpus.append(
            SharedGpu(
                owner=self._owner(job),
                node=node,
                devices=devices,
                number=number,
                memory_mib=size,
                used=used,
                is_beside_others=bool(others),
            )
        )
        return self.gpus[-1]

    def _owner(self, job: Job) -> Owner:
        return owner_of(job) if self._is_divided else ("", True, "")

    def _of_owner(self, owner: Owner) -> OpenGpus[int]:
        """Return the GPUs to which jobs of an owner may come."""
        if self._open is None:
            self._open = {}
            for at, gpu in enumerate(self.gpus):
                if {self._owner(job) for job in gpu.jobs} == {gpu.owner} and (not gpu.node or self._is_open(gpu.node)):
                    self._open.setdefault(gpu.owner, OpenGpus()).put(at, gpu.left)
        return self._open.setdefault(owner, OpenGpus())

    def _recorded(self, node: str, job: Job) -> int | None:
        """Return the GPU of a node of which a job has a part; None: it has none there."""
        account = self._view.shares.get(node)
        pod = None if account is None else account.pods.get(job.spec.job_id)
        return None if pod is None else next((gpu for share in pod.containers.values() for gpu in share.gpus), None)

    def _takes(self, name: str, job: Job) -> bool:
        return self._is_open(name) and not job.is_refused_by(name, 1)

    def _is_open(self, name: str) -> bool:
        return is_open(self._view, name)


def owner_of(job: Job) -> Owner:
    """Return whose cell the GPU of a job takes."""
    spec = job.spec
    return spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER, spec.is_guaranteed, spec.pinned_cell


def _others_of(account: SharingNode, number: int, known: Set[str]) -> Iterator[GpuRequest]:
    """Yield what pods that are no jobs have of a GPU."""
    for uid, pod in account.pods.items():
        if uid not in known:
            yield from (share.request for share in pod.containers.values() if number in share.gpus)
