"""Small scenarios, each of one rule by which an API server takes requests or refuses them.

Rule: no scenario depends on another one, on controllers or on a scheduler.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import a_node, a_pytorchjob, an_indexed_job, an_mpijob
from tests.kube.recordings.recorder import Recorder

GATE: Final = "voda.dev/placement"
HOST: Final = "kubernetes.io/hostname"
GATED: Final = [{"name": GATE}]


def pod(name: str = "p", **spec: Any) -> Object:
    """Return a pod with one container; `metadata` fields beside its name."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def binding(name: str, node: str) -> Object:
    """Return what a scheduler creates."""
    return {"kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}


async def created(r: Recorder) -> None:
    """What is created, twice, without a name, in no namespace, of no kind, and what of a status is taken."""
    await r.create(api.PODS, pod(schedulingGates=GATED))
    await r.create(api.PODS, pod())
    await r.create(api.PODS, {**pod("q"), "status": {"phase": "Running"}})
    nameless = pod()
    nameless["metadata"] = {"generateName": "p-"}
    await r.create(api.PODS, nameless)
    await r.ask("POST", api.PODS.path("nowhere"), {"kind": "Pod", "apiVersion": "v1", **pod()}, resource=api.PODS)
    await r.read(api.PODS, "nobody")
    await r.ask("GET", f"/apis/kubeflow.org/v1/namespaces/{r.namespace}/tfjobs/x")
    await r.create(api.MPIJOBS, {**an_mpijob("m", r.namespace), "status": {"conditions": []}})


async def preconditions(r: Recorder) -> None:
    """Writes that are meant for another object, or for another version of it."""
    made = await r.create(api.PODS, pod())
    old = made["metadata"]["resourceVersion"]
    await r.patch(api.PODS, "p", {"metadata": {"uid": made["metadata"]["uid"], "labels": {"a": "1"}}})
    await r.patch(api.PODS, "p", {"metadata": {"uid": "another", "labels": {"a": "2"}}})
    await r.patch(api.PODS, "p", {"metadata": {"resourceVersion": old, "labels": {"a": "3"}}})
    await r.patch(api.PODS, "nobody", {"metadata": {"uid": "another", "labels": {"a": "4"}}})
    await r.patch(api.PODS, "p", {"metadata": {"uid": "another"}, "status": {"phase": "Running"}}, "status")
    await r.delete(api.PODS, "p", uid="another")
    await r.delete(api.PODS, "p", version=old)
    await r.delete(api.PODS, "nobody", uid="another")
    await r.delete(api.PODS, "p", uid=made["metadata"]["uid"])
    job = await r.create(api.MPIJOBS, an_mpijob("m", r.namespace))
    await r.patch(api.MPIJOBS, "m", {"metadata": {"uid": "another"}, "spec": {"slotsPerWorker": 2}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"uid": job["metadata"]["uid"]}, "spec": {"slotsPerWorker": 2}})
    old = job["metadata"]["resourceVersion"]
    await r.patch(api.MPIJOBS, "m", {"metadata": {"resourceVersion": old}, "spec": {"slotsPerWorker": 3}})
    await r.create(api.JOBS, an_indexed_job("j", r.namespace))
    await r.patch(api.JOBS, "j", {"metadata": {"uid": "another"}, "spec": {"suspend": True}})


async def replaced(r: Recorder) -> None:
    """Objects in the place of their elders: a lease that two hold, a job and its status."""
    lease = await r.create(api.LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    await r.replace(api.LEASES, {**lease, "spec": {"holderIdentity": "b"}})
    await r.replace(api.LEASES, {**lease, "spec": {"holderIdentity": "c"}})
    await r.replace(api.LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "d"}})
    job = await r.create(api.MPIJOBS, an_mpijob("m", r.namespace))
    status = {"conditions": [condition("Created")], "replicaStatuses": {}}
    told = await r.replace(
        api.MPIJOBS, {**job, "status": status, "spec": {**job["spec"], "slotsPerWorker": 7}}, "status"
    )
    await r.replace(api.MPIJOBS, {**told, "status": {}, "spec": {**told["spec"], "slotsPerWorker": 2}})
    await r.replace(api.MPIJOBS, {**told, "status": {"conditions": []}}, "status")
    await r.replace(api.MPIJOBS, an_mpijob("nobody", r.namespace))


async def gates(r: Recorder) -> None:
    """Gates that are lifted for a node, one of two, added, and what else of a gated pod may be changed."""
    await r.create(api.PODS, pod(schedulingGates=[*GATED, {"name": "other"}], nodeSelector={"gpu": "yes"}))
    lifted = {"schedulingGates": [{"name": "other"}], "nodeSelector": {HOST: "n1"}}
    await r.patch(api.PODS, "p", {"spec": {"nodeSelector": {"gpu": "no"}}})
    await r.patch(api.PODS, "p", {"spec": {"nodeSelector": {"gpu": None}}})
    await r.patch(api.PODS, "p", {"spec": {"schedulingGates": [*GATED, {"name": "other"}, {"name": "third"}]}})
    await r.patch(api.PODS, "p", {"spec": {"hostNetwork": True}})
    await r.patch(api.PODS, "p", {"spec": lifted, "metadata": {"annotations": {"voda.dev/node": "n1"}}})
    await r.patch(api.PODS, "p", {"spec": {"schedulingGates": []}})
    await r.patch(api.PODS, "p", {"spec": {"schedulingGates": GATED}})
    await r.patch(api.PODS, "p", {"spec": {"nodeSelector": {HOST: "n2"}}})
    await r.patch(api.PODS, "p", {"spec": {"nodeSelector": {"more": "yes"}}})
    await r.create(api.PODS, pod("q"))
    await r.patch(api.PODS, "q", {"spec": {"schedulingGates": GATED}})
    await r.create(api.PODS, pod("r", schedulingGates=GATED))
    await r.patch(api.PODS, "r", {"spec": {"schedulingGates": None, "nodeSelector": {HOST: "n1"}}})


async def bindings(r: Recorder) -> None:
    """Pods that a scheduler binds: gated, twice, as another pod, while they leave."""
    made = await r.create(api.PODS, pod(schedulingGates=GATED))
    await r.create(api.PODS, binding("p", "n1"), "binding")
    await r.patch(api.PODS, "p", {"spec": {"schedulingGates": []}})
    other = binding("p", "n1")
    other["metadata"]["uid"] = "another"
    await r.create(api.PODS, other, "binding")
    own = binding("p", "n1")
    own["metadata"]["uid"] = made["metadata"]["uid"]
    await r.create(api.PODS, own, "binding")
    await r.create(api.PODS, binding("p", "n2"), "binding")
    await r.read(api.PODS, "p")
    await r.create(api.PODS, pod("q", metadata={"finalizers": ["voda.dev/kept"]}))
    await r.delete(api.PODS, "q")
    await r.create(api.PODS, binding("q", "n1"), "binding")
    await r.create(api.PODS, binding("nobody", "n1"), "binding")


async def deletions(r: Recorder) -> None:
    """Pods that go at once, by and by, by force; twice; with a shorter grace."""
    await r.create(api.PODS, pod("pending"))
    await r.delete(api.PODS, "pending")
    await r.read(api.PODS, "pending")
    await r.create(api.PODS, pod("bound", nodeName="n1"))
    await r.delete(api.PODS, "bound")
    await r.delete(api.PODS, "bound")
    await r.delete(api.PODS, "bound", grace_s=5)
    await r.patch(api.PODS, "bound", {"metadata": {"labels": {"still": "there"}}})
    await r.delete(api.PODS, "bound", grace_s=0)
    await r.read(api.PODS, "bound")
    await r.create(api.PODS, pod("over", nodeName="n1"))
    await r.patch(api.PODS, "over", {"status": {"phase": "Failed", "reason": "Evicted"}}, "status")
    await r.delete(api.PODS, "over")
    await r.create(api.PODS, pod("short", nodeName="n1", terminationGracePeriodSeconds=3))
    await r.delete(api.PODS, "short")
    await r.create(api.MPIJOBS, an_mpijob("m", r.namespace))
    await r.delete(api.MPIJOBS, "m")
    await r.read(api.MPIJOBS, "m")
    await r.create(api.CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    await r.delete(api.CONFIG_MAPS, "c")


async def finalizers(r: Recorder) -> None:
    """Objects that stay until nobody holds them any more."""
    held = {"finalizers": ["voda.dev/a", "voda.dev/b"]}
    await r.create(api.PODS, pod("p", metadata=held))
    await r.delete(api.PODS, "p")
    await r.delete(api.PODS, "p", grace_s=0)
    await r.patch(api.PODS, "p", {"metadata": {"finalizers": ["voda.dev/a", "voda.dev/b", "voda.dev/c"]}})
    await r.patch(api.PODS, "p", {"metadata": {"finalizers": ["voda.dev/a"]}})
    await r.create(api.PODS, pod("p"))
    await r.patch(api.PODS, "p", {"metadata": {"finalizers": None}})
    await r.read(api.PODS, "p")
    await r.create(api.PODS, pod("bound", metadata=held, nodeName="n1"))
    await r.delete(api.PODS, "bound")
    await r.patch(api.PODS, "bound", {"metadata": {"finalizers": None}})
    await r.delete(api.PODS, "bound", grace_s=0)
    await r.read(api.PODS, "bound")
    job = an_mpijob("m", r.namespace)
    job["metadata"]["finalizers"] = ["voda.dev/a"]
    await r.create(api.MPIJOBS, job)
    await r.delete(api.MPIJOBS, "m")
    await r.patch(api.MPIJOBS, "m", {"spec": {"slotsPerWorker": 2}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"finalizers": []}})
    await r.read(api.MPIJOBS, "m")


async def merge_patches(r: Recorder) -> None:
    """What a merge patch removes, replaces, merges and leaves alone, and when nothing changes."""
    job = an_mpijob("m", r.namespace, annotations={"a": "1", "b": "2"}, suspend=True)
    await r.create(api.MPIJOBS, job)
    await r.patch(api.MPIJOBS, "m", {"metadata": {"annotations": {"a": None, "c": "3"}}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"annotations": {"c": "3"}}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"annotations": None}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"labels": {"voda.dev/managed": None}}})
    sized = {"mpiReplicaSpecs": {"Worker": {"replicas": 4}}, "runPolicy": {"suspend": False}}
    await r.patch(api.MPIJOBS, "m", {"spec": sized})
    await r.patch(api.MPIJOBS, "m", {"spec": sized})
    await r.patch(api.MPIJOBS, "m", {"spec": {"runPolicy": None}})
    await r.patch(api.MPIJOBS, "m", {"metadata": {"name": "another"}})
    await r.patch(api.MPIJOBS, "m", {})
    await r.create(api.PODS, pod(metadata={"annotations": {"a": "1"}, "labels": {"l": "1"}}))
    await r.patch(api.PODS, "p", {"metadata": {"annotations": {"a": None}, "labels": None}})
    await r.patch(api.PODS, "p", {"metadata": {"ownerReferences": [owner("m")]}})
    await r.patch(api.PODS, "p", {"metadata": {"ownerReferences": []}})
    await r.patch(api.PODS, "p", {"metadata": {"generation": 9, "creationTimestamp": "2020-01-01T00:00:00Z"}})


async def statuses(r: Recorder) -> None:
    """The status, which has a path of its own, and the generation, which counts changes of all else."""
    await r.create(api.MPIJOBS, an_mpijob("m", r.namespace))
    status = {"conditions": [condition("Running")], "replicaStatuses": {"Worker": {"active": 2}}}
    await r.patch(api.MPIJOBS, "m", {"status": status})
    await r.patch(api.MPIJOBS, "m", {"status": status}, "status")
    await r.patch(api.MPIJOBS, "m", {"status": status}, "status")
    await r.patch(api.MPIJOBS, "m", {"status": status, "spec": {"slotsPerWorker": 3}}, "status")
    await r.patch(api.MPIJOBS, "m", {"metadata": {"labels": {"a": "1"}}, "status": {"replicaStatuses": {}}}, "status")
    await r.patch(api.MPIJOBS, "m", {"spec": {"slotsPerWorker": 3}, "status": {"conditions": []}})
    await r.create(api.PODS, pod())
    await r.patch(api.PODS, "p", {"status": {"phase": "Running"}})
    await r.patch(api.PODS, "p", {"status": {"phase": "Running", "reason": "x"}}, "status")
    await r.patch(api.PODS, "p", {"status": {"phase": "Failed", "reason": None}, "spec": {"nodeName": "n1"}}, "status")


async def nodes(r: Recorder) -> None:
    """A node that comes, is cordoned, tainted, not ready and deleted."""
    node = a_node("n1", 4, labels={"role": "gpus"})
    node["status"]["conditions"] = [condition("Ready", "False")]
    await r.create(api.NODES, node)
    await r.patch(api.NODES, "n1", {"spec": {"taints": []}})
    await r.patch(api.NODES, "n1", {"spec": {"unschedulable": True}})
    await r.patch(api.NODES, "n1", {"spec": {"unschedulable": None}})
    await r.patch(api.NODES, "n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    await r.patch(api.NODES, "n1", {"status": {"conditions": [condition("Ready", "True")]}})
    await r.patch(api.NODES, "n1", {"status": {"conditions": [condition("Ready", "True")]}}, "status")
    await r.patch(api.NODES, "n1", {"status": {"allocatable": {"nvidia.com/gpu": "2"}}}, "status")
    await r.delete(api.NODES, "n1")
    await r.read(api.NODES, "n1")


async def lists(r: Recorder) -> None:
    """Lists by label, by field, of a namespace, of nothing."""
    await r.create(api.PODS, pod("a", metadata={"labels": {"app": "x"}}))
    await r.create(api.PODS, pod("b", metadata={"labels": {"app": "y"}}, nodeName="n1"))
    await r.read(api.PODS)
    await r.read(api.PODS, labelSelector="app=y")
    await r.read(api.PODS, labelSelector="app")
    await r.read(api.PODS, fieldSelector="spec.nodeName!=")
    await r.read(api.PODS, labelSelector="app=none")
    await r.read(api.PYTORCHJOBS)
    await r.ask("DELETE", api.PODS.path(r.namespace), {"gracePeriodSeconds": 0}, resource=api.PODS)
    await r.read(api.PODS)


async def watches(r: Recorder) -> None:
    """What a watch shows after a version, and that a version of long ago is gone."""
    version = (await r.read(api.PODS))["metadata"]["resourceVersion"]
    await r.create(api.PODS, pod("a", metadata={"labels": {"app": "x"}}))
    await r.patch(api.PODS, "a", {"metadata": {"labels": {"app": "y"}}})
    await r.patch(api.PODS, "a", {"metadata": {"labels": {"app": "x"}}})
    await r.create(api.PODS, binding("a", "n1"), "binding")
    await r.delete(api.PODS, "a")
    await r.delete(api.PODS, "a", grace_s=0)
    await r.create(api.PODS, pod("pending"))
    await r.delete(api.PODS, "pending")
    await r.create(api.PODS, pod("held", metadata={"finalizers": ["voda.dev/a"]}))
    await r.delete(api.PODS, "held")
    await r.patch(api.PODS, "held", {"metadata": {"finalizers": None}})
    await r.create(api.PODS, pod("last", metadata={"labels": {"app": "x"}}, nodeName="n1"))
    await r.watch(api.PODS, version, "last")
    await r.watch(api.PODS, version, "last", labelSelector="app=x")
    await r.watch(api.PODS, version, "last", fieldSelector="spec.nodeName!=")
    await r.forget()
    await r.watch(api.PODS, version, "last")


async def jobs(r: Recorder) -> None:
    """What of a Job may be changed: suspended, resumed, suspended again, ended."""
    await r.create(api.JOBS, an_indexed_job("j", r.namespace, 2, suspend=True))
    await r.patch(api.JOBS, "j", job_template(schedulingGates=GATED, nodeSelector={"gpu": "yes"}))
    await r.patch(api.JOBS, "j", job_template(hostNetwork=True))
    await r.patch(api.JOBS, "j", {"spec": {"parallelism": 4, "completions": 4}})
    await r.patch(api.JOBS, "j", {"spec": {"parallelism": 4, "completions": 5}})
    await r.patch(api.JOBS, "j", {"spec": {"completions": 5}})
    await r.patch(api.JOBS, "j", {"spec": {"completionMode": "NonIndexed"}})
    await r.patch(api.JOBS, "j", {"spec": {"suspend": False, "parallelism": 3, "completions": 3}})
    await r.patch(api.JOBS, "j", job_template(nodeSelector={"gpu": "no"}))
    await r.patch(api.JOBS, "j", {"status": {"startTime": "2026-01-01T00:00:00Z", "active": 3, "ready": 3}}, "status")
    await r.patch(api.JOBS, "j", {"spec": {"suspend": True}})
    await r.patch(api.JOBS, "j", job_template(nodeSelector={"gpu": "no"}))
    stopped = {"startTime": None, "active": 0, "ready": 0, "conditions": [condition("Suspended")]}
    await r.patch(api.JOBS, "j", {"status": stopped}, "status")
    await r.patch(api.JOBS, "j", job_template(nodeSelector={"gpu": "no"}))
    plain = an_indexed_job("plain", r.namespace, 2)
    plain["spec"] |= {"completionMode": "NonIndexed"}
    await r.create(api.JOBS, plain)
    await r.patch(api.JOBS, "plain", {"spec": {"parallelism": 3}})
    await r.patch(api.JOBS, "plain", {"spec": {"parallelism": 3, "completions": 3}})


async def scales(r: Recorder) -> None:
    """The subresource by which the workers of a PyTorchJob are scaled."""
    await r.create(api.PYTORCHJOBS, a_pytorchjob("t", r.namespace, 2))
    await r.patch(api.PYTORCHJOBS, "t", {"spec": {"replicas": 4}}, "scale")
    await r.patch(api.PYTORCHJOBS, "t", {"spec": {"replicas": 4}}, "scale")
    await r.patch(api.PYTORCHJOBS, "nobody", {"spec": {"replicas": 4}}, "scale")
    await r.read(api.PYTORCHJOBS, "t")


async def evictions(r: Recorder) -> None:
    """Pods that are evicted by the API, with a budget that allows it, and with one that does not."""
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await r.create(api.BUDGETS, {"metadata": {"name": "b"}, "spec": budget})
    await r.create(api.PODS, pod("free", nodeName="n1"))
    await r.create(api.PODS, eviction(r, "free"), "eviction")
    await r.create(api.PODS, pod("a", metadata={"labels": {"app": "x"}}, nodeName="n1"))
    await running(r, "a")
    await r.create(api.PODS, eviction(r, "a"), "eviction")
    allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    await r.patch(api.BUDGETS, "b", {"status": {**allowed, "observedGeneration": 1}}, "status")
    await r.create(api.PODS, eviction(r, "a"), "eviction")
    await r.create(api.PODS, pod("b", metadata={"labels": {"app": "x"}}, nodeName="n1"))
    await running(r, "b")
    await r.create(api.PODS, eviction(r, "b"), "eviction")
    await r.create(api.PODS, eviction(r, "nobody"), "eviction")


async def discovery(r: Recorder) -> None:
    """What is served, and what is not."""
    await r.ask("GET", "/apis/kubeflow.org/v2beta1")
    await r.ask("GET", "/apis/kubeflow.org/v1")
    await r.ask("GET", "/apis/kubeflow.org/v9")
    await r.ask("GET", "/apis/nobody.example.com")


def eviction(r: Recorder, name: str) -> Object:
    """Return what `kubectl drain` creates."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": r.namespace}}


async def running(r: Recorder, name: str) -> None:
    """Say as a kubelet does that a pod runs and is ready."""
    await r.patch(api.PODS, name, {"status": {"phase": "Running", "conditions": [condition("Ready")]}}, "status")


def condition(kind: str, status: str = "True") -> Object:
    """Return a condition."""
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"type": kind, "status": status, "reason": "Recorded", "message": "it is so", **times}


def owner(name: str) -> Object:
    """Return a reference to an owner."""
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": name, "uid": "of-the-owner"}


def job_template(**spec: Any) -> Mapping[str, Any]:
    """Return a patch of a Job's template."""
    return {"spec": {"template": {"spec": spec}}}


SCENARIOS: Final[Mapping[str, Callable[[Recorder], Awaitable[None]]]] = {
    each.__name__: each
    for each in (
        *(created, preconditions, replaced, gates, bindings, deletions, finalizers, merge_patches, statuses, nodes),
        *(lists, watches, jobs, scales, evictions, discovery),
    )
}


async def recorded(client: api.Client, name: str, forget: Callable[[], Awaitable[None]]) -> list[Object]:
    """Play a scenario in a namespace of its own, and return what was answered; see `Recorder`."""
    recorder = Recorder(client, name.replace("_", "-"), forget)
    await client.create(api.NAMESPACES, {"metadata": {"name": recorder.namespace}})
    await SCENARIOS[name](recorder)
    return recorder.notes
