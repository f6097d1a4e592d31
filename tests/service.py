"""The HTTP API over a log in memory, served on a real socket: what tests of routes ask.

async with a_service() as service:
    answer = await service.ask("GET", "/api/v1/jobs")
"""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from voda.api.admission import CallerLimits
from voda.api.backend import Backend
from voda.api.listener import serving
from voda.api.server import application
from voda.application.job_folders import FolderKeeper
from voda.application.job_rules import JobRules
from voda.application.journal import Journal
from voda.application.read_model import ReadModel
from voda.application.submit_job import JobSubmitter
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.auth.tokens import Authenticator
from voda.auth.write_quota import WriteQuota
from voda.clock import Clock, VirtualClock
from voda.cluster.job_folders import LocalJobFolders
from voda.cluster.local.outputs import LocalOutputs
from voda.domain.gpus import Gpus
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, NodeJoined
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.telemetry.prometheus import PrometheusTelemetry

T = TypeVar("T")
START = 1_700_000_000.0
"""Instant at which the clock of a backend stands."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as plain values."""
        return msgspec.json.decode(self.body)

    def as_a(self, record: type[T]) -> T:
        """Return the body as a record of voda.wire."""
        return msgspec.json.decode(self.body, type=record)


@dataclass(frozen=True, slots=True)
class Service:
    """A served backend, and who asks it."""

    backend: Backend
    url: str
    session: aiohttp.ClientSession

    async def ask(
        self, method: str, path: str, *, token: str = "", body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer to one request.

        Args:
            method: of HTTP.
            path: with the query, sent as it is written.
            token: of the caller.
            body: bytes and streams as they are; text as UTF-8; anything else as JSON.
            headers: beside the token.
        """
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None and not isinstance(body, str | bytes | io.IOBase):
            body, shown = msgspec.json.encode(body), {"Content-Type": "application/json", **shown}
        where = URL(self.url + path, encoded=True)
        async with self.session.request(method, where, data=body, headers={**shown, **(headers or {})}) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def happens(self, fact: AnyFact, *, event_id: str = "", actor: str = "test") -> int:
        """Record a fact at the clock's instant and return its position once the API has seen it."""
        return await self.backend.journal.record(fact, actor=actor, event_id=event_id)


@asynccontextmanager
async def a_backend(
    store: EventStore | None = None,
    *,
    nodes: Mapping[str, int] | None = None,
    access: Authenticator | None = None,
    clock: Clock | None = None,
    jobs: Path | None = None,
    **fields: Any,
) -> AsyncIterator[Backend]:
    """Yield a backend whose view follows its log.

    Args:
        store: a log to go on with; by default an empty one in memory.
        nodes: name -> GPUs, of the pool `default`; by default n1 with 4, where the log is empty.
        access: by default none: everybody is admin.
        clock: by default a virtual one that stands at START.
        jobs: where the folders of jobs lie; by default the cluster keeps none.
        fields: of the Backend and of its JobRules, and `log_bytes_per_user`, by default without a limit.
    """
    store, clock = store or MemoryStore(), clock or VirtualClock(START, prefix="id-")
    view = ReadModel(store)
    await view.open()
    telemetry = PrometheusTelemetry()
    shown: dict[str, Any] = {"telemetry": telemetry, "exposition": telemetry.exposition}
    if jobs is not None:
        ports: dict[str, Any] = {"store": store, "clock": clock, "view": view, "telemetry": telemetry}
        shown |= {"folders": FolderKeeper(LocalJobFolders(jobs), **ports), "outputs": LocalOutputs(jobs)}
    following = asyncio.get_running_loop().create_task(view.run())
    access = access or Authenticator.none()
    quota = WriteQuota(fields.pop("log_bytes_per_user", 0), access.is_admin)
    journal = Journal(store=store, clock=clock, view=view, quota=quota)
    rules = {name: fields.pop(name) for name in JobRules.__slots__ if name in fields}
    pools = rules.setdefault("pools", ("default",))
    backend = Backend(
        journal=journal,
        live=view.live,
        submits=JobSubmitter(journal, JobRules(**{"quota_shortage": quota_shortage, **rules})),
        access=access,
        pools=pools,
        **{**shown, **fields},
    )
    if await store.position() == 0:
        for name, gpus in ({"n1": 4} if nodes is None else nodes).items():
            joined = NodeJoined(node=Node(name=name, gpus=Gpus(gpus)))
            fact = Fact(data=joined, event_id=clock.new_id(), recorded_at=clock.now(), actor="test")
            await view.wait_for(await store.append(joined.stream, ANY_VERSION, [fact]))
    try:
        yield backend
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


@asynccontextmanager
async def a_service(
    store: EventStore | None = None,
    *,
    limits: CallerLimits | None = None,
    **fields: Any,
) -> AsyncIterator[Service]:
    """Yield a backend that answers on a socket, also about pods; the fields are those of `a_backend`."""
    limits = limits or CallerLimits()
    async with (
        a_backend(store, limits=limits, **fields) as backend,
        serving(application(backend), "127.0.0.1", 0, limits=limits) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        yield Service(backend, url, session)


def a_manifest(name: str = "digits", *, workers: int = 1, **annotations: Any) -> dict[str, Any]:
    """Return an MPIJob; annotations such as min_replicas=1 become voda.dev/min-replicas: "1"."""
    container = {"name": "main", "image": "example/digits", "command": ["sh", "-c", "sleep 60"]}
    template = {"spec": {"containers": [container]}}
    notes = {f"voda.dev/{key.replace('_', '-')}": str(value) for key, value in annotations.items()}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, **({"annotations": notes} if notes else {})},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template},
                "Worker": {"replicas": workers, "template": template},
            }
        },
    }
