"""A whole service on a machine with GPUs, a caller of its API, and jobs that share a GPU or take whole ones."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.local_jobs import FOREVER, base_environment
from tests.waiting import until_it_is
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.cli.program import ProgramOptions, program_document


@dataclass
class Up:
    """A service, and a caller of its API."""

    service: MachineService
    session: aiohttp.ClientSession

    async def get(self, path: str) -> Any:
        async with self.session.get(f"{self.service.url}/api/v1/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def submit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        async with self.session.post(f"{self.service.url}/api/v1/jobs", json=manifest) as answer:
            assert answer.status == 201, await answer.text()
            body: dict[str, Any] = await answer.json()
            return body

    async def apply(self, quotas: dict[str, int]) -> None:
        """Apply virtual clusters of so many GPUs each."""
        clusters = {name: {"cells": {"node.gpu": gpus}} for name, gpus in quotas.items()}

        async def is_there() -> bool:
            return bool((await self.get("nodes"))["items"])

        await until_it_is(is_there)
        path = f"{self.service.url}/api/v1/virtual-clusters"
        async with self.session.put(path, json={"virtualClusters": clusters}) as answer:
            assert answer.status == 200, await answer.text()

    async def cancel(self, *job_ids: str) -> None:
        for job_id in job_ids:
            async with self.session.delete(f"{self.service.url}/api/v1/jobs/{job_id}") as answer:
                assert answer.status < 300, await answer.text()

    async def cancel_all(self) -> None:
        """Cancel what is live, and wait until no process of it is left."""
        await self.cancel(*self.service.live_jobs())

        async def is_deserted() -> bool:
            observed = [await cluster.observe() for cluster in self.service.clusters]
            return not self.service.live_jobs() and not any(each.workers for each in observed)

        await until_it_is(is_deserted)

    async def until_workers(self, **expected: int) -> None:
        """Wait until jobs have so many workers each."""

        async def are_there() -> bool:
            found = {job_id: (await self.get(f"jobs/{job_id}"))["replicas"] for job_id in expected}
            return found == expected

        await until_it_is(are_there)

    async def reason(self, job_id: str) -> str:
        return str((await self.get(f"jobs/{job_id}"))["message"])


@asynccontextmanager
async def an_up(home: Path, *, leaves_jobs: bool = False, mps: Path | None = None, **options: Any) -> AsyncIterator[Up]:
    """Yield a service; its jobs end with it, unless it `leaves_jobs`. `mps`: the folder of the pipes of MPS, if any."""
    fields: dict[str, Any] = {
        "port": 0,
        "has_tokens": False,
        "settings": {"ratelimit_s": 0.0},
        "gpu_sharing": "plain",
        **options,
    }
    environment = {**base_environment(), "CUDA_MPS_PIPE_DIRECTORY": str(mps or home / "no-mps")}
    async with (
        running(MachineOptions(home=home, environment=environment, **fields)) as service,
        aiohttp.ClientSession() as session,
    ):
        up = Up(service, session)
        try:
            yield up
        finally:
            if not leaves_jobs:
                await up.cancel_all()


def a_share(name: str, milli: int, script: str = FOREVER, **options: Any) -> dict[str, Any]:
    """Return what `voda submit --gpu-milli N -- sh -c SCRIPT` sends."""
    return a_program(name, ["sh", "-c", script], gpu_milli=milli, **options)


def a_program(name: str, argv: Sequence[str], *, gpu_milli: int = 0, **options: Any) -> dict[str, Any]:
    """Return what `voda submit -- ARGV` sends, with these options."""
    written = ProgramOptions(gpu_milli=str(gpu_milli or ""), **options)
    return dict(program_document([*argv], written, name=name).document.manifest)


def an_elastic(name: str, most: int = 2) -> dict[str, Any]:
    container = {"name": "pytorch", "command": ["sh", "-c", f"trap 'exit 0' TERM; {FOREVER}"]}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"voda.dev/max-replicas": str(most)}},
        "spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": most}, "pytorchReplicaSpecs": {"Worker": role}},
    }


def of_cluster(cluster: str, manifest: dict[str, Any], priority: int = 0) -> dict[str, Any]:
    """Return a manifest of a job of a virtual cluster."""
    metadata = manifest["metadata"]
    own = {"voda.dev/virtual-cluster": cluster, "voda.dev/priority": str(priority)}
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **own}}}
