"""The pods that ask for GPUs: found by uid and by node, and named GPUs that are read as written or not at all."""

from typing import Any

import msgspec
import pytest

from tests.kube.sharing import ASSUMED, GPUS_OF, a_sharing_pod
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import (
    SHARE_RESOURCES,
    annotated_gpus,
    gpu_annotations,
    share_requests,
)
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.gpus import ContainerGpus, GpuRequest, Gpus


def a_pod(uid: str = "u", core: int = 50, *, node: str = "", phase: str = "Pending", **changes: Any) -> Pod:
    body = a_sharing_pod(uid, "ns", core, **changes)
    body["metadata"]["uid"] = uid
    body["spec"]["nodeName"] = node
    return msgspec.convert({**body, "status": {"phase": phase}}, Pod)


def test_pod_that_asks_for_gpus_is_found_until_it_is_gone_and_on_its_node_until_it_ends() -> None:
    pods = GpuPods(SHARE_RESOURCES)
    stages = [a_pod(), a_pod(node="n1"), a_pod(node="n1", phase="Succeeded"), None]
    seen, before = [], None
    for now in stages:
        pods.put(before, now)
        seen.append((list(pods.by_uid), list(pods.on("n1"))))
        before = now
    assert seen == [(["u"], []), (["u"], ["u"]), (["u"], []), ([], [])]
    assert (pods.by_node, pods.changes.count) == ({}, 6)


def test_pod_that_asks_for_no_gpus_is_left_out() -> None:
    pods = GpuPods(SHARE_RESOURCES)
    pods.put(None, a_pod(containers={"main": {"nvidia.com/gpu": "1"}}))
    assert (pods.by_uid, pods.changes.count) == ({}, 0)


def test_annotations_of_others_are_dropped_but_for_those_that_name_gpus() -> None:
    pod = a_pod(annotations={f"{GPUS_OF}main": "0", ASSUMED: "true", "example.com/long": "text"})
    assert pod.metadata.annotations == {f"{GPUS_OF}main": "0", ASSUMED: "true"}


@pytest.mark.parametrize(
    ("core", "written", "gpus"),
    [
        (50, "1", (1,)),
        (200, "0,2", (0, 2)),
        (200, "3,9", (3,)),
        (50, "9", ()),
        *(
            (core, text, None)
            for core, text in [(50, ""), (50, "0,1"), (200, "1"), (200, "1,1"), (50, "-1"), (50, "x")]
        ),
        (50, "99999999999", None),
    ],
)
def test_gpus_that_annotations_name_are_read_or_none_are(core: int, written: str, gpus: tuple[int, ...] | None) -> None:
    pod = a_pod(core=core, annotations={f"{GPUS_OF}main": written})
    found = annotated_gpus(pod, share_requests(pod), 4)
    if gpus is None:
        assert found is None
    elif not gpus:
        assert found == {}
    else:
        request = GpuRequest(devices=Gpus(len(gpus))) if core > 100 else GpuRequest(milli=500)
        assert found == {"main": ContainerGpus(gpus=gpus, request=request)}


def test_annotations_when_written_are_read_back() -> None:
    shares = {"main": ContainerGpus(gpus=(0, 2), request=GpuRequest(devices=Gpus(2)))}
    written = gpu_annotations(shares)
    assert written == {"elasticgpu.io/container-main": "0,2", "elasticgpu.io/assumed": "true"}
    assert annotated_gpus(a_pod(core=200, annotations=dict(written)), {"main": shares["main"].request}, 4) == shares
