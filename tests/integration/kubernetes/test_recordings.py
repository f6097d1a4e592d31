"""The real API server answers as it was recorded to, so that what the one in memory is held against stays true."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.kube.assets import IS_OLD
from tests.kube.client import Client
from tests.kube.control_plane import MPI_V2, PYTORCH, ControlPlane, running
from tests.kube.recordings.recorder import ANSWERS, encoded
from tests.kube.recordings.scenarios import SCENARIOS, recorded

_REWORDED = frozenset(("preconditions", "statuses", "jobs"))
"""Scenarios in which 1.35.4 refuses in other words, or counts versions otherwise."""


@pytest.fixture(scope="module")
def api_server() -> Iterator[ControlPlane]:
    """An API server without controllers and scheduler, which would act on what scenarios make."""
    plane = running(controllers=False, definitions=(MPI_V2, PYTORCH))
    try:
        yield plane
    finally:
        plane.stop()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_api_server_answers_as_recorded(api_server: ControlPlane, name: str, update_golden: bool) -> None:
    if IS_OLD and name in _REWORDED:
        pytest.skip("the answers that the API server in memory gives too are those of 1.37.2")

    async def restart() -> None:
        await asyncio.to_thread(api_server.stop, "kube-apiserver")
        await asyncio.to_thread(api_server.start_api_server)

    async with Client(api_server) as client:
        notes = await recorded(client, name, restart)
    file = ANSWERS / f"{name}.json"
    text = encoded(notes)
    if update_golden:
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
