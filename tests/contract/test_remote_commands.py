"""The claims of the RemoteCommands port, of this machine's adapter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.remote_command_claims import JOB, CommandBench, RemoteCommandClaims
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job
from voda.cluster.local.exec.commands import LocalCommands
from voda.cluster.port import RemoteCommands


class LocalCommandBench:
    """A job whose worker is a real process."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.commands: RemoteCommands = LocalCommands(lambda: [ground.cluster])

    async def end_replica(self) -> None:
        await self.ground.stop(JOB)


class TestLocalCommands(RemoteCommandClaims):
    """The claims, of this machine's."""

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[CommandBench]:
        async with a_ground(tmp_path) as ground:
            await ground.start(a_torch_job(JOB, FOREVER, min_replicas=1))
            yield LocalCommandBench(ground)
