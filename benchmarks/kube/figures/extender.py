"""Pods that share GPUs of 1,000 nodes: how fast kube-scheduler places them with voda as its extender, and without.

Latency is what one who asks for one pod after the other waits for filter, priorities and bind together.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.pods import Pods
from benchmarks.kube.replica import Replica, serving
from benchmarks.kube.seeding import add_nodes, in_parallel
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.client import Client
from tests.kube.control_plane import ControlPlane
from tests.kube.sharing import a_gpu_node, a_sharing_pod, scheduler_configuration

TITLE = "kube-scheduler's extender for shared GPUs"
_NODES = 1_000
_GPUS = 8
_PODS = 2_000
_ONE_BY_ONE = 300
_GOAL_PER_S = 100.0
_GOAL_SHARE = 0.8
_GOAL_MS = 25.0
_LABEL = "round"


async def run(options: Options) -> Sequence[Row]:
    """Return pods/s with and without the extender, and the latency of one pod."""
    nodes, count, tries = options.scaled(_NODES, 10), options.scaled(_PODS, 50), options.scaled(_ONE_BY_ONE, 20)
    settings = {"sharing": {"enabled": True, "rater": "binpack"}}
    with control_plane() as plane, tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with Client(plane) as client:
            await add_nodes(client, [a_gpu_node(f"gpu-{number:04}", _GPUS) for number in range(nodes)])
            bare = await _placed(client, "bare", count, _configuration(plane, home, ""), Shares(plane, []))
            with serving(plane, home, str(home / "voda.db"), settings=settings, program=options.program) as replica:
                await replica.until_leads()
                latencies = await _latencies(client, replica, tries)
                config = _configuration(plane, home, f"{replica.url}/scheduler")
                extended = await _placed(client, "extended", count, config, Shares(plane, [replica]))
                return _rows(nodes, bare, extended, latencies)


def _rows(nodes: int, bare: "_Placed", extended: "_Placed", latencies: Sequence[float]) -> Sequence[Row]:
    ordered = sorted(latencies)
    p99, median = (1000 * ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (99, 50))
    where = f"{nodes} nodes with {_GPUS} GPUs"
    return [
        Row(
            what=f"pods placed by kube-scheduler with the extender, {where}",
            figure=extended.per_s,
            unit="/s",
            goal=min(_GOAL_PER_S, _GOAL_SHARE * bare.per_s),
            better="higher",
            yardstick=f"the same without it ({bare.per_s:,.0f}/s)",
            ratio=extended.per_s / bare.per_s,
        ),
        Row(what="filter, priorities and bind of one pod, p99", figure=p99, unit="ms", goal=_GOAL_MS),
        Row(what="filter, priorities and bind of one pod, median", figure=median, unit="ms"),
        *bare.rows("without the extender"),
        *extended.rows("with the extender"),
    ]


def _configuration(plane: ControlPlane, folder: Path, url: str) -> str:
    """Write the settings of a kube-scheduler with an extender at that URL, empty: none, and return its flag."""
    path = folder / ("extended.yaml" if url else "bare.yaml")
    path.write_text(scheduler_configuration(url, plane.kubeconfig()))
    return f"--config={path}"


class _Placed(Struct, frozen=True):
    """What it took kube-scheduler to place pods, from its start to the last of them."""

    per_s: float
    cpu_ms: Mapping[str, float]
    """Of each part, per pod; kube-scheduler's has its start."""
    cores: float
    """In use by all parts."""

    def rows(self, how: str) -> Sequence[Row]:
        """Return the rows that say what it cost."""
        parts = sorted(self.cpu_ms.items(), key=lambda item: -item[1])
        return [
            *(Row(what=f"CPU a pod, {how}: {part}", figure=each, unit="ms") for part, each in parts),
            Row(what=f"CPU, {how}: all of them together", figure=self.cores, unit="cores"),
        ]


async def _placed(client: Client, name: str, count: int, config: str, shares: Shares) -> _Placed:
    """Let kube-scheduler place pods that are there already; the rate is from the first to the last."""
    bodies = [
        a_sharing_pod(f"{name}-{number}", "default", 50, scheduler="default-scheduler", labels={_LABEL: name})
        for number in range(count)
    ]
    await in_parallel([partial(client.create, api.PODS, body) for body in bodies])
    pods = Pods(client, _LABEL)
    async with pods.followed():
        shares.begin()
        began = time.perf_counter()
        shares.plane.start_scheduler(config)
        await pods.until(lambda: len(pods.bound.get(name, {})) == count, f"{count} pods are bound")
        cpu_s, span_s = shares.seconds(), time.perf_counter() - began
        instants = pods.bound[name].values()
        shares.plane.stop("kube-scheduler")
        names = [body["metadata"]["name"] for body in bodies]
        await in_parallel([partial(client.delete, api.PODS, each, "default", grace_s=0) for each in names])
        await pods.until_gone()
    return _Placed(
        per_s=(count - 1) / (max(instants) - min(instants)),
        cpu_ms={part: 1000 * each / count for part, each in cpu_s.items()},
        cores=sum(cpu_s.values()) / span_s,
    )


async def _latencies(client: Client, replica: Replica, tries: int) -> Sequence[float]:
    """Place one pod after the other as kube-scheduler does, and return the seconds of each."""
    names = [node["metadata"]["name"] for node in await client.list(api.NODES)]
    found = []
    async with aiohttp.ClientSession() as session:

        async def ask(verb: str, body: object) -> bytes:
            async with session.post(f"{replica.url}/scheduler/{verb}", data=msgspec.json.encode(body)) as answer:
                return await answer.read()

        for number in range(tries):
            pod = await client.create(api.PODS, a_sharing_pod(f"one-{number}", "default", 50))
            meta = pod["metadata"]
            began = time.perf_counter()
            left = msgspec.json.decode(await ask("filter", {"Pod": pod, "NodeNames": names}))["NodeNames"]
            scores = msgspec.json.decode(await ask("priorities", {"Pod": pod, "NodeNames": left}))
            best = max(scores, key=lambda each: each["Score"])["Host"]
            bound = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": best}
            answer = msgspec.json.decode(await ask("bind", bound))
            found.append(time.perf_counter() - began)
            if answer["Error"]:
                raise RuntimeError(f"pod {meta['name']} was not bound: {answer['Error']}")
    return found
