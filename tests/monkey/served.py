"""`voda serve` that answers, on a port of MONKEY_PORT, how what it keeps of the cluster differs from fresh lists.

Rule: nothing of voda is changed; who connects gets a list of sentences as JSON.
"""

import asyncio
import json
import os
from contextlib import AsyncExitStack

import voda.cli
from tests.kube.mirrored import mirror_differences
from voda.app.kubernetes import replica
from voda.app.kubernetes.service import KubernetesService
from voda.domain.errors import VodaError


def answer_questions(port: int) -> None:
    """Have every service of this process answer on a port, until it ends."""
    build = replica._build

    async def built(service: KubernetesService, stack: AsyncExitStack) -> None:
        await build(service, stack)

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                said = [*await mirror_differences(service)] + [service.mirror.failure] * bool(service.mirror.failure)
            except VodaError as error:
                said = [str(error)]
            writer.write(json.dumps([str(each) for each in said]).encode())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", port)
        stack.callback(server.close)

    replica._build = built


if __name__ == "__main__":
    answer_questions(int(os.environ["MONKEY_PORT"]))  # noqa: TID251 - a program of the tests
    voda.cli.main()
