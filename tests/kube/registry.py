"""Registrar and telling on a real API server: real reflectors, a log in memory, and a hand that can be made to die.

async with a_registry(world) as registry:
    await registry.settle()
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from tests.kube import client
from tests.kube.client import Object
from tests.kube.world import World
from tests.service import a_backend
from tests.waiting import until_it_is
from voda.api.backend import Backend
from voda.application.submit_job import JobSubmitter
from voda.auth.callers import Caller
from voda.clock import SystemClock
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS, TemplateValues
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob, OnJobChange
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.events.types import AnyFact
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.reflector import Reflector
from voda.log.memory import MemoryStore
from voda.operator.registration.registrar import Registrar
from voda.operator.status.kube_events import Announcement
from voda.operator.status.status_reporter import StatusReporter
from voda.projections.jobs.record import JobRecord


class Died(BaseException):
    """The process ends here: no handler of errors sees it."""


class Mortal:
    """Passes calls on to something, and dies before or after one of them.

    Args:
        of: where calls go.
        verbs: the ones that count.
    """

    def __init__(self, of: object, *verbs: str) -> None:
        self.calls = 0
        self.dies_at: int | None = None
        """Twice the number of the call, from 0 on; one more: after it."""
        self._of = of
        self._verbs = verbs
        self._life: Mortal = self

    def share(self, life: "Mortal") -> None:
        """Count calls together with those of another, and die with it."""
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return partial(self._called, found) if name in self._verbs else found

    async def _called(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        life = self._life
        number, life.calls = life.calls, life.calls + 1
        if life.dies_at is not None and life.dies_at <= 2 * number:
            raise Died
        answer = await call(*given, **named)
        if life.dies_at is not None and life.dies_at <= 2 * number + 1:
            raise Died
        return answer


class MirroredJobs:
    """The job objects of one namespace, as reflectors have them."""

    def __init__(self, api: Api, namespace: str, hand: Api) -> None:
        self.api = hand
        self.kinds: dict[str, JobKind] = {"MPIJob": MPIJobV2(), "PyTorchJob": PyTorchJobV1()}
        self._seeing: list[OnJobChange] = []
        self.mirrors = {
            name: Reflector(api, kind.path(namespace), JobObject, changed=partial(self._see, kind), clock=SystemClock())
            for name, kind in self.kinds.items()
        }

    def jobs(self) -> Iterable[KubeJob]:
        """Return all objects."""
        return [
            KubeJob(self.kinds[name], job) for name, mirror in self.mirrors.items() for job in mirror.objects.values()
        ]

    def namespaces(self) -> Sequence[str]:
        """Return all."""
        return [""]

    def subscribe(self, on_change: OnJobChange) -> None:
        """Show changes to `on_change`."""
        self._seeing.append(on_change)

    def kind_of(self, spec: JobSpec) -> JobKind:
        """Return the kind of a job."""
        if spec.kind not in self.kinds:
            raise ActionRefused(f"this cluster serves no {spec.kind}")
        return self.kinds[spec.kind]

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """Return no pods: none run in these tests."""
        return ()

    def _see(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        for see in self._seeing:
            see(kind, before, now)


@dataclass
class Registry:
    """See the module."""

    world: World
    backend: Backend
    objects: MirroredJobs
    api: Mortal
    registrar: Registrar
    submits: JobSubmitter
    reporter: StatusReporter
    announced: list[Announcement] = field(default_factory=list)

    async def step(self) -> None:
        """Let the registrar do what it can do now, on what the API server has."""
        for mirror in self.objects.mirrors.values():
            await mirror.relist()
        await self.registrar.step()

    async def settle(self, holds: Callable[[], bool]) -> None:
        """Let the registrar work until something holds."""

        async def stepped() -> bool:
            await self.step()
            return holds()

        await until_it_is(stepped)

    async def submit(self, manifest: Object, user: str = "ann") -> JobRecord:
        """Submit a job to the API."""
        return (await self.submits.submit(manifest, Caller(user=user, role="user"))).record

    async def happens(self, data: AnyFact) -> None:
        """Record a fact."""
        await self.backend.journal.record(data, actor="test")

    async def events(self, *types: str) -> list[Event]:
        """Return the events of the log, of some types where given."""
        found = await self.backend.journal.store.read(0, 100_000)
        return [event for event in found if not types or event.type in types]

    def record(self, job_id: str) -> JobRecord:
        """Return a job."""
        record = self.backend.journal.view.job_registry.job(job_id)
        assert record is not None, f"there is no job {job_id}"
        return record

    def uid(self, job_id: str) -> str:
        """Return the uid of a job's object; empty while there is no such job."""
        record = self.backend.journal.view.job_registry.job(job_id)
        return record.job.uid if record is not None else ""

    async def note(self, name: str, note: str, kind: str = "MPIJob") -> str | None:
        """Return an annotation of a job object."""
        found: Mapping[str, str] = (await self.world.job(name, kind))["metadata"].get("annotations", {})
        return found.get(note)

    async def state(self, name: str, kind: str = "MPIJob") -> Object:
        """Return the JobState of a job object; an empty one where there is none."""
        return await self.world.client.find(client.JOB_STATES, f"{name}.{kind.lower()}", self.world.namespace) or {}

    async def why_refused(self, name: str, kind: str = "MPIJob") -> str:
        """Return why voda does not run an object; empty where it was not refused."""
        uid = (await self.world.job(name, kind))["metadata"]["uid"]
        return self.reporter.states.refused.get(uid, "")

    async def told(self, name: str) -> dict[str, str]:
        """Return reason -> message, of the Events about a job object."""
        events = await self.world.client.list(client.EVENTS, self.world.namespace)
        about = [event for event in events if event["involvedObject"]["name"] == name]
        return {event["reason"]: event["message"] for event in about if event["source"].get("component") == "voda"}


@asynccontextmanager
async def a_registry(
    world: World,
    store: MemoryStore | None = None,
    *,
    pools: Sequence[str] = ("v100",),
    announces: bool = False,
    environment: Callable[[JobSpec], Mapping[str, str]] = lambda spec: spec.environment,
    **fields: Any,
) -> AsyncIterator[Registry]:
    """Yield a registrar on the world's namespace.

    Args:
        world: the cluster.
        store: a log to go on with.
        pools: of the service.
        announces: whether announcements go to the cluster; kept in `announced` otherwise.
        environment: what a job's processes are told.
        fields: of the Backend; `has_user_policy`, whether the annotation that names a user is believed.
    """
    has_user_policy = fields.pop("has_user_policy", False)
    log = Mortal(store or MemoryStore(), "append", "append_all")
    real = await Api.open(world.plane.kubeconfig())
    hand = Mortal(real, "get", "create", "patch", "delete")
    objects = MirroredJobs(real, world.namespace, cast("Api", hand))
    announced: list[Announcement] = []
    clock = SystemClock()
    async with a_backend(cast("MemoryStore", log), nodes={}, clock=clock, pools=tuple(pools), **fields) as backend:
        submits = backend.submits
        reporter = StatusReporter(
            objects=objects, view=backend.journal.view, clock=clock, store=backend.journal.store, settled_s=0.0
        )
        registrar = Registrar(
            objects=objects,
            journal=backend.journal,
            submits=submits,
            values=TemplateValues(tolerated_taints=GPU_TAINTS, environment=environment),
            announce=reporter.announce if announces else announced.append,
            refused=reporter.states.refuse,
            has_user_policy=has_user_policy,
        )
        backend.journal.view.subscribe(registrar.see)
        backend.journal.view.subscribe(reporter.see)
        following = [asyncio.create_task(mirror.run()) for mirror in objects.mirrors.values()]
        try:
            mirrors = objects.mirrors.values()
            await world.until(lambda: all(mirror.is_synced for mirror in mirrors), what="the job objects are listed")
            yield Registry(world, backend, objects, hand, registrar, submits, reporter, announced)
        finally:
            for task in following:
                task.cancel()
            for task in following:
                with suppress(asyncio.CancelledError):
                    await task
            await real.close()
