"""What a service makes of manifests, beyond what each says by itself: its cluster, its users and its limits.

Rules: the composition root says it, for a machine or for Kubernetes; submitting a job reads the same with both. What a
pool makes of a job is found in few nodes, and without a look at jobs: a submit costs the same however many there are.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from voda.auth.callers import Caller
from voda.domain.cells import CellsSpec
from voda.domain.errors import InvalidField, InvalidInput, TooManyJobs, WrongState
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.settings import Settings
from voda.domain.shares import lacking_memory, largest_gpu_mib
from voda.events.text.cells import parts_text
from voda.kinds.base import FieldWarning, JobManifest, size_path
from voda.manifests.arrays import ARRAY
from voda.manifests.parse import ACCELERATOR, ParsedManifest
from voda.manifests.replicas import share_memory_path
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.jobs.record import JobRecord, submitted_bytes
from voda.projections.jobs.registry import JobRegistry, LiveTotals
from voda.text import size as size_text

LIVE_BYTES: Final = 32_000_000
"""A thousand jobs of 32 kB."""
_USERS_OF_MOST_BYTES: Final = 4
"""Where all live jobs have more bytes than this many users with the most that one may have, those with more than an
equal part wait; all together never have twice as many.
"""
_RESERVE: Final = 32
"""The last part of these bytes, one in so many of a user's most, is for users without live jobs: 1 MB by default."""
ARRAY_FIELD: Final = f"metadata.annotations[{ARRAY}]"
QuotaShortage = Callable[[CellsSpec, Mapping[str, Node], JobSpec], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """Which jobs there may be, and what becomes of their manifests."""

    pools: Sequence[str]
    """Pools that take jobs; the first is the default."""
    pool_label: str = ACCELERATOR
    """Label of nodes: a job that selects nodes by it goes to the pool of that name."""
    gpu_resource: str = ""
    """By which Kubernetes counts GPUs, such as nvidia.com/gpu; empty: on one machine."""
    jobs_per_user: int = 1_000
    """Live jobs; admins may have more."""
    live_bytes_per_user: int = LIVE_BYTES
    """Of live jobs' manifests and labels, which stay in memory; admins may have more; 0 = no limit."""
    warnings: Callable[[ParsedManifest], Sequence[FieldWarning]] = lambda _parsed: ()
    """Returns the fields of a manifest that the cluster ignores or changes; raises InvalidField where it cannot run."""
    counted: Callable[[ParsedManifest], ParsedManifest] = lambda parsed: parsed
    """Returns a manifest with the GPUs that its claims ask for; InvalidField: that cannot be known."""
    account: Callable[[str], Awaitable[object]] = lambda _user: sleep(0)
    """Raises InvalidInput where jobs run as their users and this one has no account."""
    refuse_unusable: Callable[[ParsedManifest], Awaitable[None]] = lambda _parsed: sleep(0)
    """Raises InvalidField where the job's user may not execute what the manifest says it runs with."""
    refuse_forbidden: Callable[[ParsedManifest, Caller], Awaitable[None]] = lambda _parsed, _caller: sleep(0)
    """Raises NotAllowed or InvalidField where voda would make more for the caller than the caller may make."""
    quota_shortage: QuotaShortage = lambda _cells, _nodes, _spec: ""
    """Returns why no guarantee of a virtual cluster ever holds the minimum of a job, one sentence; empty: one does."""


def refuse_beyond_bounds(settings: Settings, priority: int, caller: Caller, field: str) -> None:
    """Raise InvalidField for a priority that the pool leaves to admins: it goes before all jobs of all users."""
    most = settings.most_user_priority
    if caller.role != "admin" and abs(priority) > most:
        raise InvalidField(
            field,
            f"{field}: expected {-most:,} to {most:,}, which is what the pool lets users give, got {priority:,}: choose"
            " another, or ask an admin",
        )


def pool_warnings(
    cluster: LiveCluster, parsed: ParsedManifest, quota_shortage: QuotaShortage
) -> Iterator[FieldWarning]:
    """Yield whether the job has to wait for nodes, GPUs or quota, and what the pool's settings make of its grace."""
    spec = parsed.spec.as_planned
    yield from _shortened_graces(cluster.settings(spec.pool).termination_grace_s, parsed.job)
    nodes, cells = cluster.nodes(spec.pool).values(), cluster.cells(spec.pool)
    if spec.share is not None and (lacking := lacking_memory(largest_gpu_mib(nodes), spec.share)):
        message = f"it waits until a larger GPU joins pool {spec.pool}: {parts_text(lacking)}"
        yield FieldWarning(field=share_memory_path(parsed.job) or size_path(parsed.job), message=message)
    elif not spec.needs_gpus:
        return
    elif spec.share is None and (message := _too_big(spec, nodes)):
        yield FieldWarning(field=size_path(parsed.job), message=message)
    elif cells is not None and (shortage := quota_shortage(cells, cluster.nodes(spec.pool), spec)):
        yield FieldWarning(field=size_path(parsed.job), message=shortage)


def _shortened_graces(most_s: float, job: JobManifest) -> Iterator[FieldWarning]:
    for name, role in job.roles.items():
        grace_s = role.template.spec.termination_grace_period_seconds
        if grace_s is not None and grace_s > most_s:
            field = f"{job.path(name)}.template.spec.terminationGracePeriodSeconds"
            yield FieldWarning(
                field=field, message=f"it is killed {most_s:g} s after it is told to end, the pool's most"
            )


def _too_big(spec: JobSpec, nodes: Collection[Node]) -> str:
    """Return that the nodes have no room for a job of whole GPUs even when empty; empty: they have, or are none."""
    rooms = accumulate(node.usable_gpus // spec.gpus_per_replica for node in nodes)
    if not nodes or any(room >= spec.min_replicas for room in rooms):
        return ""
    room = sum(node.usable_gpus // spec.gpus_per_replica for node in nodes)
    gpus = sum(node.usable_gpus for node in nodes)
    each = "" if spec.gpus_per_replica == 1 else f" of {spec.gpus_per_replica} GPUs each"
    workers = "1 worker" if spec.min_replicas == 1 else f"{spec.min_replicas} workers"
    return (
        f"it waits until nodes join or its minimum is less: it needs {workers}{each}, and pool {spec.pool} has room for"
        f" {room} when empty ({gpus} GPUs in all)"
    )


def refuse_stop(record: JobRecord, done: str) -> None:
    """Raise WrongState for a job whose program has begun and is not to begin a second time; `done`: halted, resized."""
    if record.is_live and not record.spec.is_restartable and record.job.first_started_at is not None:
        raise WrongState(
            f"job {record.spec.job_id} is not restartable, and its program has begun: it cannot be {done}, as it would"
            " begin a second time; delete ends it"
        )


class LiveJobLimits:
    """How many live jobs a user may have, and of how many bytes: their manifests and labels stay in memory.

    Jobs that are being recorded count; admins may have more. Where the live jobs of all users together take too much
    memory, those with more than an equal part of it wait, so that nobody takes the part of others; and there is a most
    for all, of which the last bit is for users who have nothing, so that many users do not fill the memory either.
    """

    def __init__(self, job_registry: JobRegistry, rules: JobRules) -> None:
        self._job_registry = job_registry
        self._rules = rules
        self._coming = LiveTotals()

    @contextmanager
    def counted(self, caller: Caller, specs: Sequence[JobSpec]) -> Iterator[None]:
        """Count jobs as the caller's while they are recorded; raises what `refuse_beyond` does."""
        self.refuse_beyond(caller, specs)
        jobs, size = len(specs), _size_of(specs)
        self._coming.add(caller.user, size, jobs)
        try:
            yield
        finally:
            self._coming.remove(caller.user, size, jobs)

    def refuse_beyond(self, caller: Caller, specs: Sequence[JobSpec]) -> None:
        """Raise where the caller would have too many live jobs with these, one or the tasks of an array.

        Raises:
            InvalidField: an array has more tasks than a user may ever have jobs.
            InvalidInput: these alone are too large.
            TooManyJobs: some of the live ones must end first.
        """
        if caller.role == "admin":
            return
        jobs, most = len(specs), self._rules.jobs_per_user
        live = self._job_registry.live.jobs(caller.user) + self._coming.jobs(caller.user)
        if jobs > most:
            raise InvalidField(
                ARRAY_FIELD,
                f"{ARRAY_FIELD}: it has {jobs:,} tasks, and a user may have {most:,} live jobs: submit smaller arrays,"
                " one after the other",
            )
        if live + jobs > most:
            more = "" if jobs == 1 else f", too many for {jobs} more"
            raise TooManyJobs(
                f"user {caller.user} has {live} live jobs, and {most} is the most{more}: wait until some have ended"
            )
        if self._rules.live_bytes_per_user:
            self._refuse_too_large(caller.user, _size_of(specs), self._rules.live_bytes_per_user)

    def _refuse_too_large(self, user: str, size: int, most: int) -> None:
        if size > most:
            raise InvalidInput(
                f"this has {size_text(size)}, and all live jobs of a user may have {size_text(most)}: submit fewer"
                " tasks at once, or put into files what the manifest holds"
            )
        totals = (self._job_registry.live, self._coming)
        live = {each: sum(total.bytes(each) for total in totals) for total in totals for each in total.users()}
        had = live.get(user, 0)
        own = live[user] = had + size
        if own > most:
            raise TooManyJobs(
                f"manifests and labels of user {user}'s live jobs would have {size_text(own)}, and {size_text(most)} is"
                " the most: wait until some have ended, or put into files what the manifests hold"
            )
        of_all, most_of_all = sum(live.values()), _USERS_OF_MOST_BYTES * most
        if of_all > most_of_all and own > most_of_all / len(live):
            raise TooManyJobs(
                f"manifests and labels of all live jobs would have {size_text(of_all)}, and {size_text(most_of_all)} is"
                f" the most; user {user} would have {size_text(own)} of it, more than an equal part: wait until some"
                " have ended"
            )
        bound = 2 * most_of_all - (most // _RESERVE if had else 0)
        if of_all > bound:
            raise TooManyJobs(
                f"manifests and labels of all live jobs would have {size_text(of_all)}, and {size_text(bound)} is the"
                " most: wait until some have ended"
            )


def _size_of(specs: Sequence[JobSpec]) -> int:
    # All else than the index is the same in all tasks of an array.
    return len(specs) * submitted_bytes(specs[-1])
