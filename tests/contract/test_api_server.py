"""The API server in memory answers as the real one was recorded to (see tests/kube/recordings)."""

import msgspec
import pytest

from tests.kube.client import MPIJOBS, PYTORCHJOBS, Object
from tests.kube.memory_api import MemoryClient
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import wall_s
from tests.kube.recordings.recorder import ANSWERS
from tests.kube.recordings.scenarios import SCENARIOS, recorded
from tests.virtual_time import virtually


@pytest.mark.parametrize("name", SCENARIOS)
def test_server_in_memory_answers_as_the_real_one(name: str) -> None:
    notes = virtually(in_memory(name))
    recordings = msgspec.json.decode((ANSWERS / f"{name}.json").read_bytes())
    for note, recording in zip(notes, recordings, strict=True):
        assert note == recording


async def in_memory(name: str) -> list[Object]:
    server = MemoryServer(wall_s, [MPIJOBS, PYTORCHJOBS])

    async def forget() -> None:
        server.cut(forgets=True)

    return await recorded(MemoryClient(server), name, forget)
