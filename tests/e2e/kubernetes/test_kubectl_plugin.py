"""`kubectl voda` with the real kubectl: it finds the cluster's voda and its token by the kubeconfig alone."""

import asyncio
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.assets import assets
from tests.kube.client import Object
from tests.kube.objects import a_pod, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld

_LABELS = {
    "app.kubernetes.io/name": "voda",
    "app.kubernetes.io/part-of": "voda",
    "app.kubernetes.io/component": "scheduler",
}


async def test_kubectl_voda_without_any_address_asks_the_voda_of_the_cluster(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    async with (
        voda(world, tmp_path, has_tokens=True) as it,
        installed(world, urlsplit(it.service.url).port or 0),
    ):
        await make_token_known(world, tmp_path)
        await world.submit(an_indexed_job("runs", world.namespace, 2, least=1, most=2))
        await it.until_runs("runs", 2)
        await world.submit(an_indexed_job("waits", world.namespace, 4, least=4, most=4))
        await it.until(lambda: is_known(it, "waits"))

        listed = await kubectl(world, tmp_path, "plugin", "list")
        assert any(line.endswith("/kubectl-voda") for line in listed.stdout.splitlines()), listed
        queue = await kubectl(world, tmp_path, "voda", "queue", "-o", "name")
        assert queue.stdout.split() == [it.id("waits")], queue
        explained = await kubectl(world, tmp_path, "voda", "explain", it.id("waits"))
        assert "needs 4" in explained.stdout, explained
        top = await kubectl(world, tmp_path, "voda", "top")
        assert "gpu-1" in top.stdout, top
        by_context = await kubectl(world, tmp_path, "voda", "whoami", "--context", "tests")
        assert "admin" in by_context.stdout, by_context

        drained = await kubectl(world, tmp_path, "voda", "drain", "gpu-1", "--reason", "new fan")
        assert drained.stdout == (
            "gpu-1 is being drained: no other node takes workers, so 1 job will stop and wait until it is undrained"
            " (voda nodes undrain gpu-1)\n"
        ), drained
        await it.until_runs("runs", 0)
        undrained = await kubectl(world, tmp_path, "voda", "nodes", "undrain", "gpu-1")
        assert undrained.stdout == "gpu-1 takes workers again\n", undrained
        await it.until_runs("runs", 2)
        assert not forwardings(world), "no port-forward outlives its command"


async def test_kubectl_voda_where_no_voda_is_or_the_cluster_refuses_says_so_in_one_sentence(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    none = await kubectl(world, tmp_path, "voda", "queue")
    assert (none.returncode, "no Service of voda is in any namespace of the cluster" in none.stderr) == (2, True), none
    async with installed(world, 1, namespace="default"), installed(world, 1):
        both = await kubectl(world, tmp_path, "voda", "queue")
        assert f"several vodas are in the cluster (default/voda, {world.namespace}/voda)" in both.stderr, both
        named = await kubectl(world, tmp_path, "voda", "queue", VODA_NAMESPACE=world.namespace)
        assert named.returncode == 75, named
    refused = await kubectl(world, tmp_path, "voda", "queue", KUBECONFIG=str(world.plane.kubeconfig("wrong", "nobody")))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused
    unknown = await kubectl(world, tmp_path, "voda", "queue", "--context", "elsewhere")
    assert 'context "elsewhere" does not exist' in unknown.stderr, unknown
    helped = await kubectl(world, tmp_path, "voda", "queue", "--help")
    assert "Usage: kubectl voda queue" in helped.stdout, helped
    assert "\n   kubectl voda queue --user ada" in helped.stdout, helped


@asynccontextmanager
async def installed(world: JobsWorld, port: int, namespace: str = "") -> AsyncIterator[None]:
    """Have what the chart makes, with a pod that is played by this process at that port."""
    home = namespace or world.namespace
    kwok = world.cluster.kwok
    kwok.stop()
    kwok.forwards = {8470: port}
    await asyncio.to_thread(kwok.start)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kwok.port}},
    }
    if await world.client.find(api.NODES, "gpu-1") is None:
        await world.add_node("gpu-1", gpus=2)
    await world.client.patch(api.NODES, "gpu-1", {"status": status}, "status")
    pod: Object = a_pod("voda-0", home, node="gpu-1", labels=_LABELS)
    pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8470}]
    ports = [{"name": "http", "port": 8470, "targetPort": "http"}]
    metadata = {"name": "voda", "namespace": home, "labels": _LABELS}
    await world.client.create(api.PODS, pod)
    await world.client.create(api.SERVICES, {"metadata": metadata, "spec": {"selector": _LABELS, "ports": ports}})
    try:
        await world.until_it_is(lambda: runs(world, home))
        yield
    finally:
        await world.client.delete(api.SERVICES, "voda", home)
        await world.client.delete(api.PODS, "voda-0", home)


async def make_token_known(world: JobsWorld, folder: Path) -> None:
    """Create the Secret of the chart with the token of the voda on this folder."""
    token = b64encode((folder / "admin.token").read_bytes().strip()).decode()
    metadata = {"name": "voda-access", "namespace": world.namespace}
    await world.client.create(api.SECRETS, {"metadata": metadata, "data": {"admin.token": token}})


async def runs(world: JobsWorld, namespace: str) -> bool:
    return bool((await world.client.get(api.PODS, "voda-0", namespace)).get("status", {}).get("phase") == "Running")


async def is_known(it: Voda, name: str) -> bool:
    return it.job(it.id(name)) is not None


async def kubectl(
    world: JobsWorld, folder: Path, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run the real kubectl, which finds kubectl-voda beside this interpreter."""
    path = os.pathsep.join([str(assets()), str(Path(sys.executable).parent), os.defpath])
    environment: Mapping[str, str] = {
        "PATH": path,
        "HOME": str(folder),
        "KUBECONFIG": str(world.plane.kubeconfig()),
        "COLUMNS": "160",
        **variables,
    }
    return await asyncio.to_thread(
        subprocess.run,
        [str(assets() / "kubectl"), *arguments],
        env=environment,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def forwardings(world: JobsWorld) -> list[str]:
    """Return the port-forwards to this cluster that run."""
    commands = [each.read_bytes().decode(errors="replace") for each in Path("/proc").glob("[0-9]*/cmdline")]
    return [each for each in commands if "port-forward" in each and world.namespace in each]
