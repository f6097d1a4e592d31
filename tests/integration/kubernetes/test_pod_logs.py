"""What pods print is read through the real API server, from a kubelet of the tests' own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet_logs import KubeletLogs
from tests.waiting import until
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.pod_logs import KubernetesOutputs
from voda.cluster.port import LineTimes
from voda.domain.errors import InvalidInput
from voda.kubernetes_client.api import Api

PODS = "/api/v1/namespaces/default/pods"
LINES = [b"line %04d of the output\n" % number for number in range(1000)]


class Printing:
    """A job with pods that print."""

    def __init__(self, api: Api, kubelet: KubeletLogs) -> None:
        self.api = api
        self.kubelet = kubelet
        self.pods: dict[str, Pod] = {}
        self.has_ended = False
        self.outputs = KubernetesOutputs(
            api, pods=lambda job_id: tuple(self.pods.values()), has_ended=lambda job_id: self.has_ended
        )

    async def add(self, name: str, *, phase: str = "Running", restarts: int = 0, node: str = "printing") -> Pod:
        """Let a pod run on the kubelet's node."""
        containers = [{"name": "main", "image": "work"}, {"name": "sidecar", "image": "work"}]
        spec = {"containers": containers, "nodeName": node, "terminationGracePeriodSeconds": 0}
        await self.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, Pod)
        return await self.show(name, phase, restarts)

    async def show(self, name: str, phase: str, restarts: int = 0) -> Pod:
        """Write a pod's status, and let voda see it."""
        state = {"name": "main", "restartCount": restarts, "image": "", "imageID": "", "ready": True, "lastState": {}}
        status = {"phase": phase, "containerStatuses": [state]}
        pod = await self.api.patch(f"{PODS}/{name}/status", {"status": status}, Pod)
        assert pod is not None
        self.pods[name] = pod
        return pod

    async def read(self, name: str, tail_bytes: int | None = None) -> bytes:
        """Return what there is."""
        return b"".join([piece async for piece in self.outputs.read("j", name, tail_bytes=tail_bytes, follow=False)])


@pytest.fixture
async def printing(control_plane: ControlPlane) -> AsyncIterator[Printing]:
    api = await Api.open(control_plane.kubeconfig())
    async with KubeletLogs(control_plane.certificate.parent) as kubelet:
        await api.create("/api/v1/nodes", {"metadata": {"name": "printing"}}, NodeObject)
        await api.patch("/api/v1/nodes/printing/status", {"status": _reached(kubelet.port)}, NodeObject)
        made = Printing(api, kubelet)
        yield made
        for name in made.pods:
            await api.delete(f"{PODS}/{name}", grace_s=0)
        await api.delete("/api/v1/nodes/printing")
    await api.close()


async def test_replicas_are_pods_launchers_before_workers_by_index(printing: Printing) -> None:
    ages = {"j-worker-10": 1, "j-worker-2": 2, "j-launcher-old": 3, "j-launcher-new": 4, "j-worker-0": 5}
    printing.pods = {name: _pod(name, f"2026-01-01T00:00:0{age}Z") for name, age in ages.items()}
    names = await printing.outputs.replicas("j")
    assert names == ("j-launcher-new", "j-launcher-old", "j-worker-0", "j-worker-2", "j-worker-10")
    printing.pods = {}
    assert await printing.outputs.replicas("j") == ()


async def test_the_whole_output_is_that_of_the_pods_first_container(printing: Printing) -> None:
    await printing.add("j-worker-0")
    await printing.kubelet.containers["j-worker-0/main"].print(b"".join(LINES))
    await printing.kubelet.containers["j-worker-0/sidecar"].print(b"noise")
    assert await printing.read("j-worker-0") == b"".join(LINES)


@pytest.mark.parametrize("tail_bytes", [0, 1, 23, 24, 25, 240, 10_000, 24_000, 24_001, 1 << 20])
async def test_the_tail_begins_at_a_line_and_is_no_longer_than_asked(printing: Printing, tail_bytes: int) -> None:
    await printing.add("j-worker-0")
    await printing.kubelet.containers["j-worker-0/main"].print(b"".join(LINES))
    found = await printing.read("j-worker-0", tail_bytes)
    assert found == b"".join(LINES[len(LINES) - min(len(LINES), tail_bytes // 24) :])


async def test_the_tail_of_many_short_lines_is_as_long_as_asked(printing: Printing) -> None:
    await printing.add("j-worker-0")
    await printing.kubelet.containers["j-worker-0/main"].print(b"\n" * 5000)
    assert await printing.read("j-worker-0", 4000) == b"\n" * 4000


async def test_a_container_that_has_printed_nothing_yet_lets_the_one_before_speak(printing: Printing) -> None:
    await printing.add("j-worker-0", restarts=1)
    await printing.kubelet.containers["j-worker-0/main/previous"].print(b"Traceback ...\n")
    assert await printing.read("j-worker-0") == b"Traceback ...\n"
    await printing.kubelet.containers["j-worker-0/main"].print(b"again\n")
    assert await printing.read("j-worker-0", 100) == b"again\n"


async def test_an_output_that_cannot_be_read_is_one_sentence(printing: Printing) -> None:
    await printing.add("j-worker-0")
    assert await printing.read("j-worker-0") == (
        b"voda: the output of pod default/j-worker-0 cannot be read: cannot get"
        b" /api/v1/namespaces/default/pods/j-worker-0/log: the API server answers 400 BadRequest: container"
        b' "j-worker-0/main" is waiting to start: ContainerCreating\n'
    )
    await printing.api.delete(f"{PODS}/j-worker-0", grace_s=0)
    assert b'answers 404 NotFound: pods "j-worker-0" not found\n' in await printing.read("j-worker-0")


async def test_a_replica_that_is_not_there_is_refused_with_those_that_are(printing: Printing) -> None:
    printing.pods = {"j-worker-0": _pod("j-worker-0")}
    with pytest.raises(InvalidInput, match="no output of a replica 'j-worker-7': expected one of j-worker-0"):
        await printing.read("j-worker-7")


async def test_following_goes_on_with_the_next_container_and_the_next_pod_until_the_job_ends(
    printing: Printing,
) -> None:
    await printing.add("j-worker-0")
    first = printing.kubelet.containers["j-worker-0/main"]
    await first.print(b"one\ntwo\n")
    async with _followed(printing, "j-worker-0", tail_bytes=4) as read:
        await until(lambda: bytes(read) == b"two\n")
        await first.print(b"three\n")
        await until(lambda: bytes(read) == b"two\nthree\n")

        second = printing.kubelet.containers["j-worker-0/main"] = type(first)()
        await second.print(b"restarted\n")
        await printing.show("j-worker-0", "Running", restarts=1)
        await first.end()
        await until(lambda: bytes(read).endswith(b"three\nrestarted\n"))

        await printing.api.delete(f"{PODS}/j-worker-0", grace_s=0)
        del printing.pods["j-worker-0"]
        await second.end()
        third = printing.kubelet.containers["j-worker-0/main"] = type(first)()
        await third.print(b"moved\n")
        await printing.add("j-worker-0", node="printing")
        await until(lambda: bytes(read).endswith(b"restarted\nmoved\n"))

        printing.has_ended = True
        await third.print(b"the last word\n")
        await third.end()
    assert bytes(read) == b"two\nthree\nrestarted\nmoved\nthe last word\n"


async def test_following_waits_for_a_pod_that_has_not_started(printing: Printing) -> None:
    await printing.add("j-worker-0", phase="Pending")
    async with _followed(printing, "j-worker-0") as read:
        await until(lambda: len(printing.kubelet.asked) >= 2)
        await printing.kubelet.containers["j-worker-0/main"].print(b"hello\n")
        await printing.show("j-worker-0", "Running")
        await until(lambda: bool(read))
        printing.has_ended = True
        await printing.kubelet.containers["j-worker-0/main"].end()
    assert bytes(read) == b"hello\n"


async def test_following_a_launcher_ends_where_another_one_took_over(printing: Printing) -> None:
    await printing.add("j-launcher-a")
    old = printing.kubelet.containers["j-launcher-a/main"]
    await old.print(b"failed\n")
    async with _followed(printing, "j-launcher-a") as read:
        await until(lambda: bool(read))
        await printing.show("j-launcher-a", "Failed")
        printing.pods["j-launcher-b"] = _pod("j-launcher-b", "9999-01-01T00:00:00Z")
        await old.end()
    assert bytes(read) == b"failed\n"


class _followed:
    """What following a replica yields; when the block ends, it is waited for."""

    def __init__(self, printing: Printing, name: str, tail_bytes: int | None = None) -> None:
        self._pieces = printing.outputs.read("j", name, tail_bytes=tail_bytes, follow=True)
        self.read = bytearray()

    async def _pour(self) -> None:
        async for piece in self._pieces:
            self.read += piece

    async def __aenter__(self) -> bytearray:
        self._task = asyncio.create_task(self._pour())
        return self.read

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._task.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait([self._task])


def _pod(name: str, made_at: str = "2026-01-01T00:00:00Z") -> Pod:
    meta = {"name": name, "namespace": "default", "creationTimestamp": made_at}
    return msgspec.convert({"metadata": {**meta, "labels": {"training.kubeflow.org/job-name": "j"}}}, Pod)


def _reached(port: int) -> Mapping[str, Any]:
    addresses: Sequence[Mapping[str, str]] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    return {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}


@pytest.mark.parametrize("tail_bytes", [None, 24])
async def test_times_of_lines_are_asked_of_the_kubelet(printing: Printing, tail_bytes: int | None) -> None:
    await printing.add("j-worker-0")
    await printing.kubelet.containers["j-worker-0/main"].print(b"".join(LINES))
    times = LineTimes(since=1_700_000_000.0, are_shown=True)
    read = printing.outputs.read("j", "j-worker-0", tail_bytes=tail_bytes, follow=False, times=times)
    assert [piece async for piece in read]
    asked = printing.kubelet.asked[-1]
    assert (asked["sinceTime"], asked["timestamps"]) == ("2023-11-14T22:13:20Z", "true")
    await printing.read("j-worker-0")
    assert not {"sinceTime", "timestamps"} & printing.kubelet.asked[-1].keys()
