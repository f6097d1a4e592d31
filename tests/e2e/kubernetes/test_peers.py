"""What a test can ask of kwok and of the operators is what happens on the API server."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import a_pod, a_pytorchjob, an_mpijob
from tests.kube.operators.base import phase_of
from tests.kube.peers.program import Program
from tests.kube.peers.stages import ENDS_WITH, RUNS_FOR_S, STARTS
from tests.kube.peers.world import PeeredWorld
from tests.waiting import wait_until


async def started(world: PeeredWorld, **changes: Any) -> None:
    """Create a pod on a node of its own, and wait until it runs."""
    await world.add_node("n1")
    await world.client.create(api.PODS, a_pod("p", world.namespace, node="n1", **changes))
    await until(world, lambda pod: phase_of(pod) == "Running")


async def until(world: PeeredWorld, holds: Callable[[Object], bool]) -> Object:
    """Wait until something holds of the pod, and return it."""
    found: list[Object] = []

    async def does() -> bool:
        found[:] = [await world.client.get(api.PODS, "p", world.namespace)]
        return holds(found[0])

    await world.until_it_is(does)
    return found[0]


def container(pod: Object) -> Object:
    [only] = pod["status"]["containerStatuses"]
    return dict(only)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_pod_that_is_not_restarted_ends_as_it_is_told(world: PeeredWorld, code: int, phase: str) -> None:
    await started(world, spec={"restartPolicy": "Never"})
    await world.kubelet.exit(world.namespace, "p", code)
    pod = await until(world, lambda pod: phase_of(pod) == phase)
    assert container(pod)["state"]["terminated"]["exitCode"] == code


async def test_pod_that_is_restarted_on_failure_runs_again_until_it_succeeds(world: PeeredWorld) -> None:
    await started(world, spec={"restartPolicy": "OnFailure"})
    for time in (1, 2):
        await world.kubelet.exit(world.namespace, "p", 3)
        pod = await until(world, lambda pod, time=time: container(pod)["restartCount"] == time)  # type: ignore[misc]
        assert (phase_of(pod), container(pod)["lastState"]["terminated"]["exitCode"]) == ("Running", 3)
    await world.kubelet.exit(world.namespace, "p", 0)
    await until(world, lambda pod: phase_of(pod) == "Succeeded")


async def test_pod_with_a_span_ends_by_itself(world: PeeredWorld) -> None:
    notes = {RUNS_FOR_S: "0.5", ENDS_WITH: "7"}
    await started(world, annotations=notes, spec={"restartPolicy": "Never"})
    pod = await until(world, lambda pod: phase_of(pod) == "Failed")
    assert container(pod)["state"]["terminated"]["exitCode"] == 7


async def test_pod_of_a_lost_node_is_not_seen_to_until_the_node_is_back(world: PeeredWorld) -> None:
    await started(world)
    await world.lose_node("n1")
    await world.client.create(api.PODS, a_pod("q", world.namespace, node="n1"))
    await world.client.delete(api.PODS, "p", world.namespace)
    assert (await world.client.get(api.PODS, "p", world.namespace))["metadata"]["deletionTimestamp"]
    assert phase_of(await world.client.get(api.PODS, "q", world.namespace)) == "Pending"
    await world.restore_node("n1")
    await world.until_it_is(lambda: is_gone(world, "p"))
    await world.until_it_is(lambda: is_running(world, "q"))


async def test_pod_that_never_starts_is_pending(world: PeeredWorld) -> None:
    await started(world)
    await world.client.create(api.PODS, a_pod("q", world.namespace, node="n1", annotations={STARTS: "never"}))
    await world.kubelet.exit(world.namespace, "p")
    assert phase_of(await world.client.get(api.PODS, "q", world.namespace)) == "Pending"


async def test_node_that_is_not_ready_is_tainted_until_its_kubelet_speaks_again(world: PeeredWorld) -> None:
    await world.add_node("n1")
    await world.set_ready("n1", False)
    await world.until_it_is(lambda: is_tainted(world))
    await world.set_ready("n1", True)
    await world.until_it_is(lambda: is_tainted(world, is_so=False))


async def test_operator_that_ends_is_started_again(world: PeeredWorld) -> None:
    for peer in world.cluster.peers:
        peer.crash()
    await world.until(lambda: not any(peer.is_over() for peer in world.cluster.peers))
    await world.add_node("n1")
    await world.client.create(api.MPIJOBS, an_mpijob("a", world.namespace, managed=False))
    await world.client.create(api.PYTORCHJOBS, a_pytorchjob("b", world.namespace, managed=False))
    await world.until_running("a", 2)
    await world.until_running("b", 2)


async def is_gone(world: PeeredWorld, pod: str) -> bool:
    return await world.client.find(api.PODS, pod, world.namespace) is None


async def is_running(world: PeeredWorld, pod: str) -> bool:
    return phase_of(await world.client.get(api.PODS, pod, world.namespace)) == "Running"


async def is_tainted(world: PeeredWorld, *, is_so: bool = True) -> bool:
    taints = (await world.client.get(api.NODES, "n1"))["spec"].get("taints", ())
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints) == is_so


def test_peer_that_watches_the_folder_where_it_runs_does_not_see_its_own_log(tmp_path: Path) -> None:
    peer = Program(ControlPlane(tmp_path), "peer")
    peer.run([sys.executable, "-c", "import os; print(os.listdir())"])
    wait_until(peer.is_over)
    assert peer.log == "[]\n"
