"""Pods with HiveD's annotations on an API server in memory: which are there, and how one is bound."""

from collections.abc import Awaitable, Callable

import pytest

from tests.kube.acting import NAMESPACE, Stage
from tests.kube.client import PODS
from tests.kube.memory_api import MemoryApi
from tests.kube.objects import a_pod
from tests.virtual_time import virtually
from voda.cluster.kubernetes.annotated_pods import AnnotatedPods
from voda.domain.errors import NotFound, WrongState
from voda.hived.bind_info import BIND_INFO, ISOLATION
from voda.hived.pod_request import SCHEDULING_SPEC

NOTES = {ISOLATION: "0,1", BIND_INFO: "node: n1"}


def on_a_stage(act: Callable[[Stage, AnnotatedPods, str], Awaitable[None]]) -> None:
    """Run a test on two nodes and a pod of the given uid."""

    async def run() -> None:
        stage = Stage()
        for node in ("n1", "n2"):
            stage.add_node(node)
        made = stage.server.answer(
            "POST",
            PODS.path(NAMESPACE),
            {},
            a_pod("p", NAMESPACE, annotations={"other/key": "kept", SCHEDULING_SPEC: "{}"}),
        )
        stage.watch()
        await act(stage, AnnotatedPods(MemoryApi(stage.server, stage.wire), stage.inventory), made["metadata"]["uid"])

    virtually(run())


def test_pod_when_it_is_bound_has_its_node_and_annotations_by_one_call() -> None:
    async def act(stage: Stage, pods: AnnotatedPods, uid: str) -> None:
        assert (pods.uid("ns/p"), pods.uid("ns/q"), list(pods.bound())) == (uid, "", [])
        assert [pod.metadata.uid for pod in pods.pending()] == [uid]
        await pods.wake("ns/p", uid, 1.5)
        await pods.wake("ns/p", "another", 1.5)
        stage.watch()
        assert stage.inventory.pods_by_key["ns/p"].metadata.annotations["voda.dev/woken-at"] == "1.500"
        woken = {SCHEDULING_SPEC: "{}", "voda.dev/woken-at": "1.500", **NOTES}
        stage.wire.asked.clear()
        await pods.bind("ns/p", uid, "n1", NOTES)
        assert stage.wire.asked == [("POST", f"{PODS.path(NAMESPACE, 'p')}/binding")]
        made = stage.server.answer("GET", PODS.path(NAMESPACE, "p"), {}, {})
        assert (made["spec"]["nodeName"], made["metadata"]["annotations"]) == (
            "n1",
            {"other/key": "kept", **woken},
        )
        stage.watch()
        [(pod, node)] = pods.bound()
        assert (pod.key, pod.metadata.uid, dict(pod.metadata.annotations or {}), node) == (
            "ns/p",
            uid,
            woken,
            "n1",
        )
        assert list(pods.pending()) == []
        await pods.bind("ns/p", uid, "n1", NOTES)
        with pytest.raises(WrongState, match="pod ns/p is bound to node n1, not to n2"):
            await pods.bind("ns/p", uid, "n2", NOTES)

    on_a_stage(act)


def test_pod_that_is_deleted_leaving_or_another_by_now_is_not_bound() -> None:
    async def act(stage: Stage, pods: AnnotatedPods, uid: str) -> None:
        with pytest.raises(NotFound, match=r"pod ns/p \(another\) is gone"):
            await pods.bind("ns/p", "another", "n1", NOTES)
        with pytest.raises(NotFound, match="is gone"):
            await pods.bind("ns/q", uid, "n1", NOTES)
        stage.server.answer("DELETE", PODS.path(NAMESPACE, "p"), {}, {"gracePeriodSeconds": 0})
        with pytest.raises(NotFound, match="is gone"):
            await pods.bind("ns/p", uid, "n1", NOTES)
        stage.watch()
        assert pods.uid("ns/p") == ""

    on_a_stage(act)
