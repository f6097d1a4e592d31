"""voda on a world's cluster, in this process: as `voda serve` composes it, on a log of the test's own.

Rule: when it ends, every plan in its log is recomputed; a test whose log does not replay has failed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.kube.mirrored import is_believed, is_mirrored
from tests.kube.world import World
from voda.app.kubernetes.options import KubernetesOptions, ReplicaContext
from voda.app.kubernetes.replica import running
from voda.app.kubernetes.service import KubernetesService
from voda.domain.job import Job
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import AnyFact, SettingsChanged, WorkerExited
from voda.log.factory import open_log
from voda.projections.jobs.record import JobRecord
from voda.timetravel.verify import verify

F = TypeVar("F", bound=AnyFact)
AT_ONCE: Mapping[str, Any] = {"ratelimitSeconds": 0.0}


class Voda:
    """A replica that runs in this process, and what a test asks of it."""

    def __init__(self, service: KubernetesService, world: World, log: Path) -> None:
        self.service = service
        self.world = world
        self.log = log

    def id(self, name: str) -> str:
        """Return the id of the job that was first submitted under a name in the world's namespace."""
        return f"{self.world.namespace}_{name}"

    def job(self, job_id: str) -> Job | None:
        """Return a live job."""
        return self.service.jobs.by_id().get(job_id)

    def record(self, name: str) -> JobRecord:
        """Return what the log says of a job, by its name."""
        record = self.service.view.job_registry.job(self.id(name))
        assert record is not None
        return record

    def nodes(self, job_id: str) -> Sequence[str]:
        """Return the nodes of a live job's workers, by index."""
        job = self.job(job_id)
        return [job.workers[index] for index in sorted(job.workers)] if job is not None else []

    def phase(self, job_id: str) -> str:
        """Return how a job stands, also when it has ended."""
        record = self.service.view.job_registry.job(job_id)
        return str(record.phase) if record is not None else ""

    async def until_runs(self, name: str, workers: int) -> None:
        """Wait until a job has exactly so many workers, in the log and in the cluster, and all of them run."""

        async def runs() -> bool:
            names = await self.world.running_workers(name)
            return len(self.nodes(self.id(name))) == len(names) == workers

        await self.until(runs)

    async def until_runs_as(self, name: str, job_id: str, workers: int) -> None:
        """Wait until a job that was not the first of its name runs."""

        async def runs() -> bool:
            return len(self.nodes(job_id)) == len(await self.world.running_workers(name)) == workers

        await self.until(runs)

    async def until_lost(self, name: str, index: int, *, times: int = 1) -> None:
        """Wait until the log tells that a worker exited, for the nth time."""

        async def is_lost() -> bool:
            exits = await self.facts(WorkerExited, self.id(name))
            return sum(index in fact.workers for fact in exits) >= times

        await self.until(is_lost)

    async def until_ended(self, name: str, phase: str) -> None:
        """Wait until a job has ended so."""

        async def has_ended() -> bool:
            return self.phase(self.id(name)) == phase

        await self.until(has_ended)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds; where it does not in time, show the log too."""
        try:
            await self.world.until_it_is(holds)
        except AssertionError as error:
            told = "\n".join(f"{event.position} {event.data}"[:400] for event in (await self.events())[-40:])
            raise AssertionError(f"{error}\n{told}\ntrouble: {self.service.failure()}") from None

    async def set(self, pool: str, **fields: Any) -> None:
        """Change settings of a pool, as the API does."""
        clock = self.service.clock
        data = SettingsChanged(pool=pool, settings=fields)
        fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now(), actor="test")
        await self.service.view.wait_for(await self.service.store.append(data.stream, ANY_VERSION, [fact]))

    async def events(self) -> Sequence[Event]:
        """Return the whole log."""
        return await self.service.store.read(0, 1_000_000)

    async def facts(self, kind: type[F], job_id: str = "") -> Sequence[F]:
        """Return the facts of one type, of one job or of all."""
        found = [event.data for event in await self.events() if isinstance(event.data, kind)]
        return [fact for fact in found if not job_id or getattr(fact, "job_id", "") == job_id]


@asynccontextmanager
async def voda(
    world: World,
    folder: Path,
    *,
    pools: Mapping[str, Mapping[str, Any]] | None = None,
    has_tokens: bool = False,
    own_namespace: str = "",
    **settings: Any,
) -> AsyncIterator[Voda]:
    """Run voda on a world's cluster; again on the same folder, it goes on from its log.

    Args:
        world: whose API server.
        folder: of its log and secrets.
        pools: name -> settings; by default v100 decides at once.
        has_tokens: whether callers need one; that of the admin is in the folder.
        own_namespace: where voda would have its Secrets; empty: it runs outside of the cluster.
        settings: other fields of the settings file, as Python values.
    """
    fields = {
        "home": str(folder),
        "listen": {"host": "127.0.0.1", "port": 0},
        "cluster": {"defaultPool": ""},
        # A machine that stands still for some seconds ends no leadership.
        "leader": {"namespace": world.namespace, "leaseSeconds": 15.0, "renewSeconds": 10.0, "retrySeconds": 0.5},
        "pools": pools or {"v100": dict(AT_ONCE)},
        **settings,
    }
    options = msgspec.convert(fields, KubernetesOptions)
    around = ReplicaContext(
        identity=f"test-{id(fields)}",
        namespace=world.namespace,
        own_namespace=own_namespace,
        kubeconfig=world.plane.kubeconfig(),
        has_tokens=has_tokens,
    )
    async with running(options, around) as service:
        yield Voda(service, world, folder / "voda.db")
        await world.until_it_is(partial(is_mirrored, service))
    await refuse_unverified(folder / "voda.db")


async def refuse_unlike(log: str, world: World) -> None:
    """Fail unless the log of replicas comes to have of workers what the cluster has, and its plans are verified."""
    await world.until_it_is(partial(is_believed, log, world.plane.kubeconfig()))
    await refuse_unverified(log)


async def refuse_unverified(log: Path | str) -> None:
    """Fail unless every recorded plan is what the planner says today."""
    store = await open_log(log)
    try:
        verdict = await verify(store)
        assert verdict.difference is None, verdict.difference
    finally:
        await store.close()
