"""The tests' own client: what it opens is closed when it ends, or the next test would pay for it."""

import asyncio
import gc

from tests.kube import client as api
from tests.kube.client import Client
from tests.kube.control_plane import ControlPlane


async def test_client_whose_requests_were_cancelled_leaves_no_connection(control_plane: ControlPlane) -> None:
    async with Client(control_plane) as client:
        await client.list(api.NODES)
        requests = [asyncio.create_task(client.list(api.PODS)) for _ in range(10)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.list(api.NODES))
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        sockets = list(client.sockets)
    gc.collect()
    assert len(sockets) > 1
    assert all(each.fileno() < 0 for each in sockets)
