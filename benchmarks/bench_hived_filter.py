"""How long kube-scheduler waits for `filter` of HiveD's extender: real HTTP, log on disk, server in its own process.

Half of the nodes' GPUs are in use by jobs of voda, by the plan in force. Pods of 1 to 8 GPUs come one after the other,
each a gang of its own; all are asked for again, as kube-scheduler does; others find their quota used and wait.
"""

import asyncio
import http.client
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.table import Row
from voda.api.backend import Backend
from voda.api.listener import serving
from voda.api.server import application
from voda.app.runtime import tune_garbage_collector
from voda.application.job_rules import JobRules
from voda.application.journal import Journal
from voda.application.read_model import ReadModel
from voda.application.submit_job import JobSubmitter
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobSubmitted, NodeJoined, PlanAdopted, VirtualClustersApplied
from voda.hived.pod_request import SCHEDULING_SPEC, HivedPod
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.operator.extender import Extender
from voda.operator.hived.pod_scheduler import PodScheduler
from voda.operator.pod_ports import PodPorts

TITLE = "HiveD's extender: filter over HTTP, 1,000 nodes of 8 GPUs, 20 virtual clusters"
_NODES = [f"node-{number:04}" for number in range(1_000)]
_TEAMS = 20
_JOBS = 500
_PODS = 1_000
_WAITING = 300
_GOAL_MS = 20.0


class _NoPods:
    """A cluster that shows no pods: what is bound is not measured."""

    def uid(self, key: str) -> str:
        return ""

    def bound(self) -> Iterable[tuple[HivedPod, str]]:
        return ()

    def pending(self) -> Iterable[HivedPod]:
        return ()

    async def wake(self, key: str, uid: str, now: float) -> None:
        return None

    async def bind(self, key: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        return None


def run() -> Sequence[Row]:
    """Measure `filter` for new pods, for pods that have cells already, and for pods that wait."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        server = context.Process(target=_serve, args=(folder, there))
        server.start()
        try:
            new, again, waiting = _measure(here.recv())
        finally:
            server.terminate()
            server.join(timeout=30)
    rows = [_row(what, laps) for what, laps in (("new pods", new), ("asked again", again), ("that wait", waiting))]
    return [_row("all pods", [*new, *again, *waiting], goal=_GOAL_MS), *rows]


def _row(what: str, laps: Sequence[float], goal: float | None = None) -> Row:
    return Row(
        what=f"filter of {what} ({len(laps):,}), p99", figure=float(np.percentile(laps, 99)) * 1e3, unit="ms", goal=goal
    )


def _measure(port: int) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Return the seconds that calls took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    # One team after the other, so that none has more pods than its quota of 50 nodes holds.
    pods = [_body(number, f"team-{number % _TEAMS}", 1 << number // _TEAMS % 4) for number in range(_PODS)]
    new = [_lap(connection, body, is_placed=True) for body in pods]
    again = [_lap(connection, body, is_placed=True) for body in pods]
    too_much = [_body(_PODS + number, "team-0", 8, pods=51) for number in range(_WAITING)]
    return new, again, [_lap(connection, body, is_placed=False) for body in too_much]


def _lap(connection: http.client.HTTPConnection, body: bytes, *, is_placed: bool) -> float:
    begun = time.perf_counter()
    connection.request("POST", "/v1/extender/filter", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    took = time.perf_counter() - begun
    assert answer.status == 200, text
    assert bool(msgspec.json.decode(text)["NodeNames"]) == is_placed, text[:500]
    return took


def _body(number: int, team: str, leafs: int, *, pods: int = 1) -> bytes:
    group = {"name": f"gang-{number}", "members": [{"podNumber": pods, "leafCellNumber": leafs}]}
    request = {"virtualCluster": team, "leafCellNumber": leafs, "affinityGroup": group}
    annotations = {SCHEDULING_SPEC: msgspec.json.encode(request).decode()}
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": str(leafs)}}}
    metadata = {"name": f"pod-{number}", "namespace": "team", "uid": f"uid-{number}", "annotations": annotations}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": _NODES})


def _serve(folder: str, ready: Connection) -> None:
    asyncio.run(_serving(Path(folder), ready))


async def _serving(folder: Path, ready: Connection) -> None:
    """Serve a log of a pool until the process is ended; send the port once it is ready."""
    tune_garbage_collector()
    store = await open_store(folder / "voda.db")
    clock, view = SystemClock(), ReadModel(store)
    await view.open()
    following = asyncio.create_task(view.run())
    scheduler = PodScheduler(store=store, clock=clock, view=view, pods=_NoPods(), not_leading=str)
    view.subscribe(scheduler.see)
    await _record(store, view, clock)
    scheduler.is_ready = True
    journal, pools = Journal(store=store, clock=clock, view=view), ("default",)
    backend = Backend(
        journal=journal,
        live=view.live,
        submits=JobSubmitter(journal, JobRules(pools=pools)),
        access=Authenticator.none(),
        pools=pools,
        pods=PodPorts(hived=Extender(scheduler)),
    )
    async with serving(application(backend), "127.0.0.1", 0) as url:
        ready.send(int(url.rpartition(":")[2]))
        await following


async def _record(store: EventStore, view: ReadModel, clock: SystemClock) -> None:
    """Record nodes, virtual clusters, and jobs with a plan that gives them every other node."""
    per_team = QuotaSpec(cell_type="node", cell_number=len(_NODES) // _TEAMS)
    teams = {f"team-{number}": VirtualClusterSpec(virtual_cells=(per_team,)) for number in range(_TEAMS)}
    facts: list[AnyFact] = [NodeJoined(node=Node(name=name, gpus=Gpus(8))) for name in _NODES]
    facts.append(VirtualClustersApplied(pool="default", cells=CellsSpec(virtual_clusters=teams)))
    placed, devices = {}, {}
    for number, node in zip(range(_JOBS), itertools.islice(_NODES, 0, None, 2), strict=True):
        job_id = f"job-{number}"
        spec = JobSpec(
            job_id=job_id, min_replicas=1, max_replicas=8, priority=-1, virtual_cluster=f"team-{number % _TEAMS}"
        )
        facts.append(JobSubmitted(spec=spec))
        placed[job_id], devices[job_id] = (node,) * 8, tuple((device,) for device in range(8))
    facts.append(
        PlanAdopted(
            pool="default",
            number=1,
            based_on=0,
            policy="elastic-fifo",
            placer="steady",
            cause="benchmark",
            placed=placed,
            devices=devices,
        )
    )
    for fact in facts:
        sealed = Fact(data=fact, event_id=clock.new_id(), recorded_at=clock.now(), actor="benchmark")
        await view.wait_for(await store.append(fact.stream, ANY_VERSION, [sealed]))
