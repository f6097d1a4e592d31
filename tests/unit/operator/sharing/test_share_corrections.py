"""What puts the account of a node right, as a function."""

from typing import Any

import msgspec

from tests.kube.sharing import ASSUMED, GPUS_OF, a_sharing_pod
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES
from voda.domain.gpus import ContainerGpus, GpuDevice
from voda.domain.shares import SharingNode
from voda.extender.share_verbs import ExtenderPod
from voda.operator.sharing.share_corrections import NodeToCorrect, node_facts


def a_pod_on_n1(name: str, core: int, **changes: Any) -> Pod:
    body = a_sharing_pod(name, "ns", core, spec={"nodeName": "n1"}, **changes)
    return msgspec.convert({**body, "metadata": {**body["metadata"], "uid": name}}, Pod)


def first_gpu(account: SharingNode, pod: ExtenderPod) -> dict[str, ContainerGpus] | str:
    """Choose GPU 0 for each container, where it has so much left."""
    shares = {name: ContainerGpus(gpus=(0,), request=request) for name, request in pod.requests.items()}
    return account.refusal(shares) or shares


def test_gpu_goes_to_the_pod_that_names_it_and_not_to_one_that_others_bound_without_naming_any() -> None:
    account = SharingNode(devices=(GpuDevice(memory_mib=16_000),))
    node = NodeToCorrect(name="n1", account=account, names=SHARE_RESOURCES, choose=first_gpu)
    names = a_pod_on_n1("names", 70, annotations={f"{GPUS_OF}main": "0", ASSUMED: "true"})
    found = node_facts(node, stale=(), lacking=[a_pod_on_n1("other", 60), names])
    assert ([fact.pod for fact in found.facts], list(found.refused)) == (["ns/names"], ["other"])
