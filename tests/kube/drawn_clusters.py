"""Clusters and jobs drawn by chance: nodes of any shape, pods of others on them, and what workers may ask of nodes.

Rule: what is drawn depends on the seed alone; the API server takes all of it.
"""

from random import Random
from typing import Any

from msgspec import Struct

from tests.kube.client import Object
from tests.kube.objects import GPU, a_node, an_indexed_job

_TAINTS = (
    {"key": "dedicated", "value": "vision", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "speech", "effect": "NoExecute"},
    {"key": "spot", "effect": "NoSchedule"},
    {"key": "slow", "effect": "PreferNoSchedule"},
    {"key": GPU, "value": "present", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
)
_TOLERATIONS = (
    {"key": "dedicated", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "vision"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "slow", "value": "", "effect": "PreferNoSchedule"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists"},
)
_LABELS = {"zone": ("a", "b", "c"), "disk": ("ssd", "hdd", ""), "cores": ("8", "16", "04", "many", "0x10")}
_AMOUNTS = {
    "cpu": ("100m", "500m", "1", "2.5", "7", "12"),
    "memory": ("1", "128Mi", "1Gi", "1.5Gi", "7e9", "30Gi"),
    "ephemeral-storage": ("1Gi", "20Gi"),
    "rdma/hca": ("1", "2"),
    "hugepages-2Mi": ("64Mi",),
}
_OFFERS = {
    "cpu": ("4", "7910m", "16", "64"),
    "memory": ("8Gi", "16000000Ki", "256Gi"),
    "ephemeral-storage": ("50Gi", "1Ti"),
    "rdma/hca": ("", "0", "2", "8", "8"),
    "hugepages-2Mi": ("", "256Mi", "256Mi", "1Gi"),
    "pods": ("3", "6", "110", "110"),
}
_WHOLE = ("rdma/hca", "hugepages-2Mi")
"""Their requests are their limits."""


class DrawnCluster(Struct, frozen=True):
    """A pool, and what people do with it."""

    pool: str
    nodes: list[Object]
    others: list[Object]
    """Pods of others on the nodes; some have ended."""
    jobs: list[Object]
    newcomer: Object
    """A job of higher priority, which comes when the others run."""


def drawn_cluster(seed: int, namespace: str) -> DrawnCluster:
    """Draw one."""
    chance, pool = Random(seed), f"pool-{seed}"
    nodes = [_node(chance, f"n{seed}-{number}", pool) for number in range(chance.randint(3, 8))]
    others = [
        _other(chance, f"other-{seed}-{place}-{number}", namespace, node["metadata"]["name"])
        for place, node in enumerate(nodes)
        for number in range(chance.choice((0, 0, 1, 2, 4)))
    ]
    jobs = [_job(chance, f"job-{seed}-{number}", namespace, pool) for number in range(chance.randint(2, 6))]
    newcomer = _job(chance, f"new-{seed}", namespace, pool, is_hard=chance.random() < 0.3)
    newcomer["metadata"]["annotations"]["voda.dev/priority"] = "10"
    return DrawnCluster(pool, nodes, others, jobs, newcomer)


def _node(chance: Random, name: str, pool: str) -> Object:
    labels = {key: chance.choice(values) for key, values in _LABELS.items() if chance.random() < 0.7}
    taints = chance.sample(_TAINTS, chance.choice((0, 0, 0, 0, 1, 1, 2)))
    amounts = {name: amount for name, choices in _OFFERS.items() if (amount := chance.choice(choices))}
    node = a_node(name, chance.choice((0, 1, 2, 4, 8)), pool, labels=labels, taints=taints, amounts=amounts)
    if chance.random() < 0.1:
        node["spec"]["unschedulable"] = True
    return node


def _other(chance: Random, name: str, namespace: str, node: str) -> Object:
    spec = _pod(chance, gpus=chance.choice((0, 0, 0, 1)))
    status = {"phase": "Succeeded"} if chance.random() < 0.15 else {}
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "spec": {**spec, "nodeName": node, "tolerations": [{"operator": "Exists"}]}} | (
        {"status": status} if status else {}
    )


def _job(chance: Random, name: str, namespace: str, pool: str, *, is_hard: bool = False) -> Object:
    least = chance.choice((1, 1, 2, 3))
    most = least + chance.choice((0, 0, 1, 4))
    pod = _pod(chance, gpus=chance.choice((0, 1, 1, 1, 2, 4)))
    if chance.random() < 0.25:
        pod["nodeSelector"] = {key: chance.choice(values) for key, values in _drawn_labels(chance, 1)}
    if chance.random() < 0.3:
        terms = [_term(chance) for _ in range(chance.choice((1, 1, 2)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod["affinity"] = {"nodeAffinity": required}
    pod["tolerations"] = chance.sample(_TOLERATIONS, chance.choice((0, 1, 2)))
    if is_hard:
        chance.choice((_ask_for_much, _ask_for_a_label))(pod)
    job = an_indexed_job(name, namespace, least, least=least, most=most, pool=pool)
    job["spec"]["template"]["spec"] = {**pod, "restartPolicy": "Never"}
    return job


def _ask_for_much(pod: Object) -> None:
    resources = pod["containers"][0]["resources"]
    resources["requests"]["cpu"] = "200"
    resources["limits"].pop("cpu", None)


def _ask_for_a_label(pod: Object) -> None:
    pod["nodeSelector"] = {"zone": "z"}


def _drawn_labels(chance: Random, count: int) -> list[tuple[str, tuple[str, ...]]]:
    return chance.sample(sorted(_LABELS.items()), count)


def _term(chance: Random) -> Object:
    expressions = [_expression(chance, key, values) for key, values in _drawn_labels(chance, chance.choice((1, 1, 2)))]
    return {"matchExpressions": expressions}


def _expression(chance: Random, key: str, values: tuple[str, ...]) -> Object:
    operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": key, "operator": operator, "values": [chance.choice(("0", "8", "012"))]}
    some = chance.sample(values, chance.randint(1, len(values)))
    return {"key": key, "operator": operator, **({"values": some} if operator in ("In", "NotIn") else {})}


def _pod(chance: Random, *, gpus: int) -> Object:
    """Return a pod's spec: containers, init containers and sidecars, and sometimes what it asks for as a whole."""
    containers = [_container(chance, f"c{number}") for number in range(chance.choice((1, 1, 2)))]
    limits = containers[0]["resources"].setdefault("limits", {})
    limits |= {GPU: str(gpus)} if gpus else {}
    first = [_container(chance, f"i{number}") for number in range(chance.choice((0, 0, 1, 2)))]
    for container in first:
        if chance.random() < 0.4:
            container["restartPolicy"] = "Always"
    return {"containers": containers, **({"initContainers": first} if first else {})}


def _container(chance: Random, name: str) -> Object:
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for resource in chance.sample(sorted(_AMOUNTS), chance.choice((0, 1, 1, 2))):
        amount = chance.choice(_AMOUNTS[resource])
        if resource in _WHOLE:
            requests[resource] = limits[resource] = amount
        elif chance.random() < 0.8:
            requests[resource] = amount
        else:
            limits[resource] = amount
    if "hugepages-2Mi" in requests:
        # Kubernetes wants it beside others.
        requests.setdefault("cpu", "100m")
        limits.pop("cpu", None)
    return {"name": name, "image": "work", "resources": {"requests": requests, "limits": limits}}
