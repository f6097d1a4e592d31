"""Pods that claim parts of GPUs of 100 nodes: from gated pods to allocated claims, with voda and without.

Both times all pods and the claims that kube-controller-manager makes for them are there; with voda it chooses the GPUs
and lifts the gates, without it the gates alone are lifted. kube-scheduler allocates. The time is that from the first
gate, or from when voda leads, to the last pod that is bound.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.pods import Pods
from benchmarks.kube.replica import Replica, serving
from benchmarks.kube.seeding import add_nodes, in_parallel
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.client import Client, Object
from tests.kube.control_plane import ControlPlane
from tests.kube.devices import CLASS, a_claim_template, a_device_class, a_gpu, a_slice, claims_of
from tests.kube.objects import a_node, a_pod

TITLE = "pods that claim parts of GPUs (dynamic resource allocation)"
_NODES = 100
_GPUS = 8
_PODS = 1_000
_GOAL_PER_S = 50.0
_GOAL_SHARE = 0.8
_LABEL = "round"
_GATE = "voda.dev/share"
_SETTINGS: dict[str, Any] = {
    "cluster": {"defaultPool": "default", "gpuDeviceClasses": [CLASS]},
    "sharing": {"claims": True, "rater": "binpack"},
}


async def run(options: Options) -> Sequence[Row]:
    """Return pods/s with voda and without, and who used the cores."""
    nodes, count = options.scaled(_NODES, 10), options.scaled(_PODS, 50)
    with control_plane(controllers=True, scheduler=True) as plane, tempfile.TemporaryDirectory() as folder:
        async with Client(plane) as client:
            await _publish(client, nodes)
            bare, _ = await _rate(plane, client, "bare", count, nullcontext())
            replica = serving(
                plane, Path(folder), str(Path(folder) / "voda.db"), settings=_SETTINGS, program=options.program
            )
            placed, shares = await _rate(plane, client, "placed", count, replica)
            where = f"{nodes} nodes with {_GPUS} GPUs"
            row = Row(
                what=f"gated pods to allocated claims, voda chooses the GPU, {where}",
                figure=placed,
                unit="/s",
                goal=min(_GOAL_PER_S, _GOAL_SHARE * bare),
                better="higher",
                yardstick=f"the same claims without it ({bare:,.0f}/s)",
                ratio=placed / bare,
            )
            return [row, *shares]


async def _publish(client: Client, nodes: int) -> None:
    names = [f"gpu-{number:04}" for number in range(nodes)]
    await client.create(api.DEVICE_CLASSES, a_device_class())
    await add_nodes(client, [a_node(name, 0) for name in names])
    slices = [a_slice(name, [a_gpu(name, number) for number in range(_GPUS)]) for name in names]
    await in_parallel([partial(client.create, api.SLICES, each) for each in slices])
    quarter = {"exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"milli": "250", "memory": "20Gi"}}}}
    await client.create(api.CLAIM_TEMPLATES, a_claim_template("quarter", "default", request=quarter))


async def _rate(
    plane: ControlPlane, client: Client, name: str, count: int, voda: AbstractContextManager[Replica | None]
) -> tuple[float, Sequence[Row]]:
    """Let pods be placed whose claims are there already; return pods/s, and who used the cores."""
    bodies = [_a_pod(f"{name}-{number}", name) for number in range(count)]
    await in_parallel([partial(client.create, api.PODS, body) for body in bodies])
    pods = Pods(client, _LABEL)
    async with pods.followed():
        await pods.until(lambda: _have_claims(pods, count), f"{count} pods have their claims")
        with voda as replica:
            if replica is not None:
                await replica.until_leads()
            shares = Shares(plane, [replica] if replica else [])
            began = time.perf_counter()
            if replica is None:
                lifted: Object = {"spec": {"schedulingGates": []}}
                keys = [("default", body["metadata"]["name"]) for body in bodies]
                await in_parallel([partial(client.patch, api.PODS, key, lifted) for key in keys])
            await pods.until(lambda: len(pods.bound.get(name, {})) == count, f"{count} pods are bound")
            span_s, rows = max(pods.bound[name].values()) - began, shares.rows()
        keys = [("default", body["metadata"]["name"]) for body in bodies]
        await in_parallel([partial(client.delete, api.PODS, key[1], key[0], grace_s=0) for key in keys])
        await pods.until_gone()
    return count / span_s, rows


def _have_claims(pods: Pods, count: int) -> bool:
    there = pods.mirror.objects.values()
    return len(there) == count and all(pod["status"].get("resourceClaimStatuses") for pod in there)


def _a_pod(name: str, label: str) -> Object:
    spec = {**claims_of("quarter"), "schedulingGates": [{"name": _GATE}]}
    return a_pod(name, "default", spec=spec, labels={_LABEL: label})
