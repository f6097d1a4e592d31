"""A Kubernetes cluster as voda sees it: mirrors of nodes, pods and job objects, shared by the pools' clusters.

Rules: every replica mirrors, so that a new leader knows at once what there is; only the leader acts (`work`).
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct

from voda.clock import Clock
from voda.cluster.kubernetes.binding.binder import Binder
from voda.cluster.kubernetes.client import paths
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.reflector import Reflector
from voda.cluster.kubernetes.cluster import KubernetesCluster
from voda.cluster.kubernetes.convergence.actuator import Actuator
from voda.cluster.kubernetes.convergence.hostfile_refresh import Poker
from voda.cluster.kubernetes.convergence.stall_watch import Patience
from voda.cluster.kubernetes.convergence.steps import Halted, Stopped
from voda.cluster.kubernetes.discovery import served_kinds
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.served_kinds import trouble as unserved
from voda.cluster.kubernetes.resources.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory, Seen
from voda.cluster.kubernetes.state.missing_objects import Confirmation
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.observations import Notices
from voda.cluster.port import Notice
from voda.concurrency import survived
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.domain.job import Job, JobSpec, Phase
from voda.events.types import WorkerStarted
from voda.metrics import NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

_TOGETHER_S: Final = 0.02
"""What happens within this span is told as one."""
_TICK_S: Final = 1.0
_SWEEP_S: Final = 5.0
_DISCOVER_S: Final = 60.0
_ABSENT_AFTER_S: Final = 30.0
"""After which a kind that jobs need and the server does not name is believed not to be served."""

SeenJob = Callable[[JobKind, JobObject | None, JobObject | None], None]
"""(kind, before, now) -> nothing."""


class Setup(Struct, frozen=True, kw_only=True):
    """What a site needs to know."""

    rule: PoolRule
    clock: Clock
    job: Callable[[str], Job | None]
    """A live job of the log, as its latest reader has it."""
    past: Callable[[str], Job | None]
    """A job of the log that has ended; None: the log has never heard of it, or forgot it."""
    jobs: Callable[[], Iterable[Job]]
    """All live jobs."""
    job_pools: Callable[[], Iterable[str]]
    """Pools that have live jobs; asked for several times per submit, so not to be found by looking at each job."""
    namespaces: Sequence[str] = ()
    """Where jobs are looked for; empty: everywhere."""
    pools: Sequence[str] = ()
    """Pools that are there even without nodes."""
    relist_s: float = 600.0
    stall: Callable[[str], str] = lambda job_id: ""
    """What the log was told last that a live job waits for; empty: that it goes on."""
    telemetry: Telemetry = NO_TELEMETRY


class KubernetesSite:
    """One cluster; used on one event loop.

    Args:
        api: its API server.
        setup: see Setup.
    """

    def __init__(self, api: Api, setup: Setup) -> None:
        self.api = api
        self.kinds: dict[str, JobKind] = {}
        """Name -> kind, of the job objects that are served."""
        self.inventory = Inventory(setup.rule, setup.job, setup.past)
        self.clusters: dict[str, KubernetesCluster] = {}
        self._setup = setup
        self._binder = Binder(self.inventory, api, setup.clock, self._tell_job, telemetry=setup.telemetry)
        self._actuator = Actuator(self.inventory, api, setup.clock, self._binder, self._tell_job)
        self._notices = Notices(self.inventory, lambda pool, fact: self._news.append((pool, fact)))
        self._news: list[tuple[str, Notice]] = []
        """(pool, fact) of what is being told."""
        self._confirmation = Confirmation(self.inventory, api, setup.clock, kinds=self.kinds, jobs=setup.jobs)
        self._patience = Patience(
            self.inventory, self._actuator, self._binder, setup.clock, told=setup.stall, tell=self._tell_job
        )
        self._poker = Poker(self.inventory, api, setup.clock, setup.telemetry)
        self._wake = asyncio.Event()
        self._each_job: list[SeenJob] = []
        self._reflectors: list[Reflector[Any]] = list(self._common_mirrors())
        self._followed: set[tuple[str, str]] = set()
        """Kind and namespace of the job objects that are mirrored."""
        self._has_begun = asyncio.Event()
        """Set once it is known what is to be mirrored."""
        self._discovered_at = math.inf
        """When the server first said what it serves."""
        self._is_at_work = False
        """Whether what changes is told: who does not lead would only collect it."""
        self._is_undiscovered = False
        """Whether the server did not say last time which jobs it serves."""

    # ---- what every replica does

    async def run(self) -> None:
        """Mirror the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            while True:
                for reflector in await self._discovered():
                    group.create_task(reflector.run())
                # An operator may be installed after voda was.
                await asyncio.sleep(_DISCOVER_S if self._has_begun.is_set() else _TICK_S)

    async def synced(self) -> None:
        """Return once everything has been listed."""
        await self._has_begun.wait()
        for reflector in self._reflectors:
            await reflector.synced()

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed."""
        return self._has_begun.is_set() and all(reflector.is_synced for reflector in self._reflectors)

    @property
    def trouble(self) -> str:
        """Why what is known may be old or too little, one sentence; empty while it is not."""
        troubles = [reflector.trouble for reflector in self._reflectors if reflector.trouble]
        if not troubles and self._has_begun.is_set():
            return unserved(self.kinds)
        return troubles[0] if troubles else ""

    def mirrored(self) -> Mapping[str, int]:
        """Return how many objects are mirrored: collection -> count."""
        counts = Counter[str]()
        for reflector in self._reflectors:
            counts[reflector.collection] += len(reflector.objects)
        return counts

    def pools(self) -> Sequence[str]:
        """Return the pools: of nodes, of settings, and of jobs that wait for nodes."""
        return sorted({*self._setup.pools, *self.inventory.pools(), *self._setup.job_pools()})

    def cluster(self, pool: str) -> KubernetesCluster:
        """Return the cluster of a pool, the same one each time."""
        if pool not in self.clusters:
            self.clusters[pool] = KubernetesCluster(
                pool, self.inventory, self._notices, self._actuator, self._confirmation.confirm
            )
        return self.clusters[pool]

    def each_job(self, see: SeenJob) -> None:
        """Have every change of a job object shown to `see`."""
        self._each_job.append(see)

    def jobs(self) -> Iterable[tuple[JobKind, JobObject]]:
        """Return all job objects there are."""
        return [(seen.kind, seen.object) for seen in self.inventory.objects.values()]

    def kind_of(self, spec: JobSpec) -> JobKind:
        """Return the kind that runs such a job.

        Raises:
            ActionRefused: the cluster serves none.
        """
        if (kind := self.kinds.get(spec.kind)) is None:
            raise ActionRefused(
                f"job {spec.job_id}: this cluster serves no {spec.kind}: its operator is not installed"
                f" (served: {', '.join(sorted(self.kinds)) or 'none'})"
            )
        return kind

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """Return the pods of a job's object, as far as they are there."""
        seen = self.inventory.object_of(job_id)
        return tuple(self.inventory.pods(seen).values()) if seen is not None else ()

    # ---- what the leader does

    def begin(self) -> None:
        """Take what there is as the beginning; to be called before any pool is led."""
        self._is_at_work = True
        self.inventory.dirty_jobs.clear()
        self.inventory.dirty_nodes.clear()
        self._notices.begin(self._setup.jobs())
        # Whatever was left half done, and objects of jobs that ended meanwhile.
        self.inventory.dirty_jobs.update(self.inventory.claimed())
        self.inventory.dirty_jobs.update(self.inventory.working())

    def heed(self, job_id: str) -> None:
        """Look at a job again: the log has changed about it."""
        if self._is_at_work:
            self.inventory.dirty_jobs.add(job_id)
            self._wake.set()

    async def work(self) -> None:
        """Tell what changes, and do what is wanted, until cancelled; then forget what was wanted."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._sweep())
                group.create_task(self._poker.run())
        finally:
            self._is_at_work = False
            self._actuator.stand_down()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await self._wake.wait()
                await asyncio.sleep(_TOGETHER_S)
                self._wake.clear()
                jobs = self._tell_changes()
                # Not waited for: a server that is slow about one job must not keep the news of others from the log.
                if due := {*jobs, *self._actuator.due()}:
                    group.create_task(self._actuator.converge(due))

    def _tell_changes(self) -> set[str]:
        """Tell the log what changed since the last time, and return the jobs concerned."""
        inventory = self.inventory
        nodes, inventory.dirty_nodes = inventory.dirty_nodes, set()
        jobs, inventory.dirty_jobs = inventory.dirty_jobs, set()
        for name in sorted(nodes):
            with survived("telling of a node", name):
                self._notices.node(name)
        for job_id in sorted(jobs):
            with survived("telling of a job", job_id):
                self._tell_of(job_id)
        # Last who came: what one job left in the same moment another may have by now, and no node is overfull.
        news, self._news = self._news, []
        for pool, fact in sorted(news, key=lambda told: isinstance(told[1], WorkerStarted)):
            self._tell(pool, fact)
        return jobs

    def _tell_of(self, job_id: str) -> None:
        self._notices.job(job_id, self._actuator.nodes(job_id))
        self._poker.see(job_id)
        for node, reason in self._notices.refusals(job_id):
            self._binder.refuse(job_id, node, reason)
        self._let_go(job_id)

    def _let_go(self, job_id: str) -> None:
        """Wish the end of what is left of a job that has ended for the log, or that its operator has given up."""
        desired = self._actuator.desired
        if self.inventory.job(job_id) is not None:
            if job_id not in desired and self._is_broken(job_id):
                # Its workers may be as planned, so that nobody misses anything: once they go, it is started anew.
                desired[job_id] = Halted()
            return
        if isinstance(desired.get(job_id), Stopped):
            return
        past = self._setup.past(job_id)
        if past is None:
            # Of a log that never heard of it: whoever submits jobs from objects looks at those.
            self._actuator.desired.pop(job_id, None)
        else:
            self._actuator.desired[job_id] = Stopped(is_unwanted=past.phase is Phase.CANCELED)

    def _is_broken(self, job_id: str) -> bool:
        seen = self.inventory.object_of(job_id)
        return seen is not None and seen.kind.is_broken(seen.object, tuple(self.inventory.pods(seen).values()))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            with survived("sweeping", "refusals"):
                self._binder.lift({job.spec.job_id: tuple(job.refusals) for job in self._setup.jobs() if job.refusals})
            with survived("sweeping", "stalls"):
                self._patience.look(job.spec.job_id for job in self._setup.jobs())
            self.inventory.dirty_jobs.update(self._actuator.unsettled())
            self._wake.set()

    # ---- inside

    def _common_mirrors(self) -> Iterable[Reflector[Any]]:
        yield self._mirror(paths.NODES, NodeObject, self._waking(self.inventory.see_node))
        # All of them, and not only those of the namespaces of jobs: they hold what the nodes have.
        yield self._mirror(paths.PODS, Pod, self._waking(self.inventory.see_pod))

    async def _discovered(self) -> list[Reflector[Any]]:
        """Return mirrors of the kinds that are served and were not before."""
        found: list[Reflector[Any]] = []
        try:
            served = await served_kinds(self.api)
        except (ClusterUnavailable, ActionRefused) as error:
            level = logging.DEBUG if self._is_undiscovered else logging.WARNING
            _log.log(level, "cannot ask which jobs are served reason=%s", error)
            self._is_undiscovered = True
            return found
        self._is_undiscovered = False
        for name, kind in served.items():
            known = self.kinds.setdefault(name, kind)
            for namespace in self._namespaces():
                if (name, namespace) not in self._followed:
                    self._followed.add((name, namespace))
                    see = partial(self._see_job, known)
                    found.append(self._mirror(paths.collection(known, namespace), JobObject, see))
        self._reflectors += found
        if not self._has_begun.is_set() and self._is_believed():
            if reason := unserved(self.kinds):
                _log.warning("%s", reason)
            self._has_begun.set()
        return found

    def _is_believed(self) -> bool:
        """Say whether the server serves no more kinds than it says.

        One that starts knows no custom resources for a moment: jobs of theirs must not be taken for deleted.
        """
        now = self._setup.clock.now()
        self._discovered_at = min(self._discovered_at, now)
        needed = {job.spec.kind for job in self._setup.jobs()}
        return needed <= self.kinds.keys() or now - self._discovered_at >= _ABSENT_AFTER_S

    def _namespaces(self) -> Sequence[str]:
        """Return where job objects are followed: where they are looked for, and where there are some of before."""
        asked = self._setup.namespaces
        return sorted({*asked, *(job.spec.namespace for job in self._setup.jobs())}) if asked else [""]

    def _mirror(self, path: str, of: type[Any], changed: Callable[[Any, Any], None]) -> Reflector[Any]:
        setup = self._setup
        return Reflector(
            self.api, path, of, changed=changed, clock=setup.clock, relist_s=setup.relist_s, telemetry=setup.telemetry
        )

    def _waking(self, see: Callable[[str, Any], None]) -> Callable[[Any, Any], None]:
        def changed(before: Any, now: Any) -> None:
            key = (before if now is None else now).metadata.key
            with survived("mirroring", key):
                see(key, now)
            self._stir()

        return changed

    def _see_job(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        about = before if now is None else now
        name = about.metadata.key if about is not None else ""
        with survived("mirroring", name):
            self._mirror_job(kind, before, now)
        for see in self._each_job:
            with survived("looking at an object", name):
                see(kind, before, now)
        self._stir()

    def _mirror_job(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._notices.part(Seen(kind, before))
            self.inventory.see_object(before.metadata.uid, kind, None)
        if now is not None:
            self._confirmation.shown(now.metadata.uid)
            self.inventory.see_object(now.metadata.uid, kind, now)

    def _stir(self) -> None:
        """Have what changed told, if anybody is to be told."""
        if not self._is_at_work:
            self.inventory.dirty_jobs.clear()
            self.inventory.dirty_nodes.clear()
        self._wake.set()

    def _tell_job(self, job_id: str, fact: Notice) -> None:
        if (pool := self.inventory.pool(job_id)) is not None:
            self._tell(pool, fact)

    def _tell(self, pool: str, fact: Notice) -> None:
        self.cluster(pool).tell(fact)
