"""Reading what local replicas print."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job, an_mpi_job
from voda.cluster.local.outputs import LocalOutputs
from voda.domain.errors import InvalidInput


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with a_ground(tmp_path) as ground:
        yield ground


async def _all(outputs: LocalOutputs, replica: str, *, tail_bytes: int | None = None, follow: bool = False) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([chunk async for chunk in outputs.read("a", replica, tail_bytes=tail_bytes, follow=follow)])


async def test_output_when_followed_goes_on_until_the_job_has_ended(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "echo one; sleep 0.4; echo two"))
    await ground.until_logged("one")
    assert await _all(LocalOutputs(ground.folder), "launcher", follow=True) == b"one\ntwo\n"


async def test_output_when_its_tail_is_asked_for_begins_at_a_line(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"echo first; echo second; echo third; {FOREVER}"))
    await ground.until_logged("third\n")
    outputs = LocalOutputs(ground.folder)
    assert await _all(outputs, "launcher", tail_bytes=8) == b"third\n"
    assert await _all(outputs, "launcher", tail_bytes=13) == b"second\nthird\n"
    assert await _all(outputs, "launcher", tail_bytes=1000) == b"first\nsecond\nthird\n"
    assert await _all(outputs, "launcher", tail_bytes=0) == b""


async def test_replicas_when_asked_for_come_in_their_order(ground: Ground) -> None:
    await ground.start(a_torch_job("a", f"echo up; {FOREVER}"), workers=3)
    for index in range(3):
        await ground.until_logged("up", replica=f"worker-{index}")
    assert await LocalOutputs(ground.folder).replicas("a") == ("worker-0", "worker-1", "worker-2")


@pytest.mark.parametrize("replica", ["worker-9", "../../../etc/passwd", "", "launcher.log"])
async def test_output_when_there_is_no_such_replica_is_refused(ground: Ground, replica: str) -> None:
    await ground.start(an_mpi_job("a", f"echo up; {FOREVER}"))
    await ground.until_logged("up")
    with pytest.raises(InvalidInput, match="expected one of launcher"):
        await _all(LocalOutputs(ground.folder), replica)


@pytest.mark.parametrize("job_id", ["ghost", "../a", "/etc", "."])
async def test_replicas_when_the_job_is_unknown_are_none(ground: Ground, job_id: str) -> None:
    assert await LocalOutputs(ground.folder).replicas(job_id) == ()
