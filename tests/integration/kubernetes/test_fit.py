"""What voda checks before it binds a worker is what the real kube-scheduler checks.

Pairs of a node and a pod are drawn by chance, each pair kept apart from the others by a label; the scheduler binds the
pod or says why not, and voda has to be of its opinion.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import ready
from tests.kube.world import World
from voda.cluster.kubernetes.binding.fit import unfit
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.quantities import NodeLoad
from voda.domain.rng import rng_at

PAIRS = 160
SEED = 5
PAIR = "pair"
GPU = "nvidia.com/gpu"
HCA = "rdma/hca"
AMPLE = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi", GPU: "8", HCA: "8"}
ANYWHERE: Mapping[str, Any] = {"tolerations": [{"operator": "Exists"}]}


class Pair(Struct):
    """A node with what runs on it, and a pod for it."""

    node: Object
    others: Sequence[Object]
    pod: Object


async def test_unfit_agrees_with_kube_scheduler_on_whatever_pods_and_nodes_ask_for(world: World) -> None:
    pairs = [_drawn(rng_at(SEED, number), number, world.namespace) for number in range(PAIRS)]
    await world.add_nodes(*(pair.node for pair in pairs))
    await world.until_it_is(lambda: _are_settled(world))
    await _create(world, [other for pair in pairs for other in pair.others])
    await _see_to_it_that_the_scheduler_knows(world)
    await _create(world, [pair.pod for pair in pairs])
    await world.until_it_is(lambda: _are_all_judged(world))

    wrong, reasons = [], Counter[str]()
    for number, pair in enumerate(pairs):
        said, scheduled, why = await _opinions(world, pair)
        reasons[_kind(said)] += 1
        if scheduled == bool(said):
            wrong.append(f"pair {number}: voda says {said or 'it fits'!r}, the scheduler {why or 'bound it'!r}")
    assert not wrong, "\n".join(wrong)
    # Otherwise little was proven.
    expected = {"fits", "resource", "taint", "cordon", "label", "affinity"}
    assert expected == {kind for kind, count in reasons.items() if count >= 4}, reasons


async def _opinions(world: World, pair: Pair) -> tuple[str, bool, str]:
    """Return what voda says, whether the scheduler bound the pod, and what it said if not."""
    node = msgspec.convert(await world.client.get(api.NODES, pair.node["metadata"]["name"]), NodeObject)
    load = NodeLoad()
    for other in pair.others:
        name = other["metadata"]["name"]
        load.add(name, msgspec.convert(await world.client.get(api.PODS, name, world.namespace), Pod))
    found = await world.client.get(api.PODS, pair.pod["metadata"]["name"], world.namespace)
    pod = msgspec.convert(found, Pod)
    why = " ".join(each.message for each in pod.status.conditions if each.type == "PodScheduled")
    return unfit(pod, node, load.free(node)), bool(pod.spec.node_name), why


async def _are_settled(world: World) -> bool:
    """Say whether the node controller has given the nodes all taints they are to have, and taken the others."""
    nodes = [msgspec.convert(node, NodeObject) for node in await world.client.list(api.NODES)]
    keys = [{taint.key for taint in node.spec.taints} for node in nodes]
    return all(
        "node.kubernetes.io/not-ready" not in found
        and ("node.kubernetes.io/unschedulable" in found) == node.spec.unschedulable
        for node, found in zip(nodes, keys, strict=True)
    )


async def _see_to_it_that_the_scheduler_knows(world: World) -> None:
    """Return once the scheduler has seen all that was created so far: it learns of objects in their order."""
    await world.add_nodes(_a_node("last", {"cpu": "1", "pods": "1"}, {PAIR: "last"}))
    await _create(world, [_a_pod("last", world.namespace, {}, {"nodeSelector": {PAIR: "last"}, **ANYWHERE})])

    async def is_bound() -> bool:
        return bool((await world.client.get(api.PODS, "last", world.namespace))["spec"].get("nodeName"))

    await world.until_it_is(is_bound)


async def _are_all_judged(world: World) -> bool:
    return all(_is_judged(pod) for pod in await world.client.list(api.PODS, world.namespace))


def _is_judged(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return bool(pod["spec"].get("nodeName")) or any(each.get("reason") == "Unschedulable" for each in conditions)


async def _create(world: World, pods: Sequence[Object]) -> None:
    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(world.client.create(api.PODS, pod))


def _kind(said: str) -> str:
    words = {"cordoned": "cordon", "taint": "taint", "label": "label", "affinity": "affinity", "free": "resource"}
    return next((kind for word, kind in words.items() if f" {word}" in said), "fits")


def _drawn(rng: Random, number: int, namespace: str) -> Pair:
    # One or two obstacles at a time: one that keeps nearly every pod away would hide all others.
    topics = rng.sample(("amounts", "taints", "affinity", "labels"), rng.choice((1, 1, 1, 2)))
    name, labels = f"node-{number}", {PAIR: str(number), **_drawn_labels(rng)}
    node = _a_node(name, _drawn_amounts(rng) if "amounts" in topics else AMPLE, labels)
    spec: dict[str, Any] = {"nodeSelector": {PAIR: str(number)}}
    if "taints" in topics:
        node["spec"] = {"unschedulable": rng.random() < 0.25, "taints": _drawn_taints(rng)}
        spec["tolerations"] = _drawn_tolerations(rng)
    if "affinity" in topics:
        spec |= _drawn_affinity(rng, name)
    if "labels" in topics:
        spec["nodeSelector"] |= {"zone": rng.choice("ab")}
    others = [
        _a_pod(f"other-{number}", namespace, {"cpu": "500m", "memory": "1Gi", GPU: "1"}, {"nodeName": name, **ANYWHERE})
        for _ in range(rng.choice((0, 1, 1)))
    ]
    return Pair(node, others, _a_pod(f"pod-{number}", namespace, _drawn_requests(rng), spec | _drawn_init(rng)))


def _drawn_labels(rng: Random) -> dict[str, str]:
    drawn = {"zone": rng.choice(("a", "b", "")), "size": rng.choice(("1", "5", "07", "x", "")), "disk": "ssd"}
    return {key: value for key, value in drawn.items() if value or rng.random() < 0.5}


def _drawn_amounts(rng: Random) -> dict[str, str]:
    # No less than what others take: of more than all taken, this server's scheduler refuses those that want none.
    amounts: Mapping[str, Sequence[str]] = {
        "cpu": ("2", "4", "7910m"),
        "memory": ("4Gi", "6e9", "8000000Ki"),
        "pods": ("1", "2", "110", "110"),
        "ephemeral-storage": ("1Gi", "20Gi"),
        GPU: ("1", "2", "4"),
        HCA: ("1",),
    }
    drawn = {key: rng.choice(values) for key, values in amounts.items()}
    return {key: value for key, value in drawn.items() if key != HCA or rng.random() < 0.5}


def _drawn_requests(rng: Random) -> dict[str, str]:
    wishes: Mapping[str, Sequence[str]] = {
        "cpu": ("100m", "0.5", "1500m", "2", "3500m"),
        "memory": ("128974848", "1Gi", "3Gi", "4e9"),
        GPU: ("1", "2"),
        HCA: ("1",),
        "ephemeral-storage": ("512Mi", "2Gi"),
    }
    likely = {"cpu": 0.8, "memory": 0.7, GPU: 0.6, HCA: 0.1, "ephemeral-storage": 0.2}
    return {key: rng.choice(values) for key, values in wishes.items() if rng.random() < likely[key]}


def _drawn_init(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.7:
        return {}
    containers = [
        _a_container(f"init-{each}", {"cpu": rng.choice(("1", "3", "7"))}) for each in range(rng.choice((1, 2)))
    ]
    return {"initContainers": containers}


def _drawn_taints(rng: Random) -> list[dict[str, str]]:
    keys = rng.choice(((), ("team",), ("team",), ("team", "spot")))
    effects = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
    return [{"key": key, "value": rng.choice(("", "ml", "web")), "effect": rng.choice(effects)} for key in keys]


def _drawn_tolerations(rng: Random) -> list[dict[str, str]]:
    every: tuple[dict[str, str], ...] = (
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "ml"},
        {"key": "team", "value": "web", "effect": "NoSchedule"},
        {"key": "team", "value": ""},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    )
    return rng.sample(every, rng.choice((0, 1, 1, 2)))


def _drawn_affinity(rng: Random, node: str) -> dict[str, Any]:
    terms = [_drawn_term(rng, node) for _ in range(rng.choice((1, 1, 2)))]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _drawn_term(rng: Random, node: str) -> dict[str, Any]:
    if rng.random() < 0.1:
        return {}
    term: dict[str, Any] = {"matchExpressions": [_drawn_expression(rng) for _ in range(rng.choice((1, 1, 2)))]}
    if rng.random() < 0.3:
        operator, name = rng.choice(("In", "NotIn")), rng.choice((node, "elsewhere"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def _drawn_expression(rng: Random) -> dict[str, Any]:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": rng.choice(("size", "zone")), "operator": operator, "values": [rng.choice(("3", "0", "y"))]}
    key = rng.choice(("zone", "disk", "rack"))
    values = rng.sample(("a", "b", "ssd", "x-x"), rng.choice((1, 2))) if operator in ("In", "NotIn") else []
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def _a_node(name: str, amounts: Mapping[str, str], labels: Mapping[str, str]) -> Object:
    status = {"capacity": dict(amounts), "allocatable": dict(amounts), "conditions": [ready(True)]}
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"taints": []}, "status": status}


def _a_pod(name: str, namespace: str, requests: Mapping[str, str], spec: Mapping[str, Any]) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [_a_container("main", requests)], **spec},
    }


def _a_container(name: str, requests: Mapping[str, str]) -> Object:
    limits = {key: amount for key, amount in requests.items() if "/" in key}
    return {"name": name, "image": "work", "resources": {"requests": dict(requests), "limits": limits}}
