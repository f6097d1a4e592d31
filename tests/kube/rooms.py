"""Prints which modules of voda are entered from the POST of a job to its bound workers: `python -m tests.kube.rooms`.

On a real API server with kube-scheduler and kwok, voda in this process. What runs beside (mirrors, the lease) counts.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aiohttp
import click

from tests.e2e.kubernetes.service import voda
from tests.kube.objects import an_indexed_job
from tests.kube.peers.cluster import PeeredCluster, cluster_of_jobs
from tests.kube.peers.jobs_world import JobsWorld

_ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def entered() -> Iterator[set[str]]:
    """Yield the modules of voda that are entered while this lasts, as paths from the root."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    found: set[str] = set()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        house = f"{_ROOT / 'voda'}/"
        found |= {str(Path(each).relative_to(_ROOT)) for each in files if each.startswith(house)}


async def walk(cluster: PeeredCluster, folder: Path) -> set[str]:
    """Submit an Indexed Job and wait until both its workers are bound; return the modules entered."""
    async with JobsWorld(cluster) as world:
        await world.add_node("gpu-1", gpus=4)
        before = an_indexed_job("before", world.namespace, 2, least=2, most=2)
        job = an_indexed_job("a", world.namespace, 2, least=2, most=2, managed=False)
        async with voda(world, folder) as it, aiohttp.ClientSession() as session:
            # A job that runs: voda leads and knows the cluster.
            await world.submit(before)
            await it.until_runs("before", 2)
            with entered() as modules:
                async with session.post(f"{it.service.url}/api/v1/jobs", json=job) as answer:
                    assert answer.status == 201, await answer.text()
                await world.until_running("a", 2)
            return modules


def main() -> None:
    """Print the modules and how many they are."""
    with tempfile.TemporaryDirectory() as folder, cluster_of_jobs() as cluster:
        modules = asyncio.run(walk(cluster, Path(folder)))
    click.echo("\n".join(sorted(modules)))
    click.echo(f"modules entered from POST to bound workers: {len(modules)}")


if __name__ == "__main__":
    main()
