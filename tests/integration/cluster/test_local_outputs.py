"""Reading what local replicas print."""

import asyncio
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.local_jobs import FOREVER, Ground, a_torch_job, an_mpi_job
from voda.cluster.local.outputs import LocalOutputs
from voda.cluster.local.processes import shim
from voda.cluster.port import LineTimes
from voda.domain.errors import InvalidInput, ServerBusy


async def _all(outputs: LocalOutputs, replica: str, *, tail_bytes: int | None = None, follow: bool = False) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([chunk async for chunk in outputs.read("a", replica, tail_bytes=tail_bytes, follow=follow)])


async def test_output_when_followed_goes_on_until_the_job_has_ended(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "echo one; sleep 0.4; echo two"))
    await ground.until_logged("one")
    assert await _all(LocalOutputs(ground.folder), "launcher", follow=True) == b"one\ntwo\n"


async def test_output_when_its_disk_stops_answering_says_so_in_its_last_line(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.start(an_mpi_job("a", f"echo one; {FOREVER}"))
    await ground.until_logged("one")
    read = LocalOutputs(ground.folder).read("a", "launcher", tail_bytes=None, follow=True)
    assert await anext(read) == b"one\n"
    monkeypatch.setattr("voda.cluster.local.outputs._READ_S", 0.0)
    said = [chunk async for chunk in read]
    assert said == [b"[voda: the output cannot be read: the disk did not answer within 0 s]\n"]


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


async def _timed(outputs: LocalOutputs, replica: str, **times: Any) -> bytes:
    read = outputs.read("a", replica, tail_bytes=None, follow=False, times=LineTimes(**times))
    return b"".join([chunk async for chunk in read])


@pytest.mark.slow
async def test_lines_are_timed_to_the_second_and_chosen_by_it_while_the_job_runs(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"echo one; sleep 3; printf two; sleep 3; echo; echo three; {FOREVER}"))
    await ground.until_logged("three\n")
    outputs = LocalOutputs(ground.folder)
    lines = [line.split(b" ") for line in (await _timed(outputs, "launcher", are_shown=True)).splitlines()]
    assert [text for _, text in lines] == [b"one", b"two", b"three"]
    first, second, third = (datetime.fromisoformat(at.decode()).timestamp() for at, _ in lines)
    assert (1 <= second - first <= 60, 1 <= third - second <= 60) == (True, True)
    assert await _timed(outputs, "launcher", since=first + 1.5) == b"two\nthree\n"
    # A line that was begun before is an earlier one.
    assert await _timed(outputs, "launcher", since=second + 1.5) == b"three\n"
    assert await _timed(outputs, "launcher", since=third + 3_600) == b""
    assert await _timed(outputs, "launcher", since=0.0) == b"one\ntwo\nthree\n"


def _written(folder: Path, output: bytes, times: bytes) -> LocalOutputs:
    home = folder / "a" / ".voda" / "replicas" / "launcher"
    home.mkdir(parents=True)
    (folder / "a" / "logs").mkdir()
    (folder / "a" / "logs" / "launcher.log").write_bytes(output)
    (home / "times").write_bytes(times)
    os.utime(folder / "a" / "logs" / "launcher.log", (1_700_000_500, 1_700_000_500))
    return LocalOutputs(folder)


async def test_line_has_the_first_instant_by_which_it_was_there_else_that_of_the_last_change(tmp_path: Path) -> None:
    noted = [(2, 1_700_000_000.9), (5, 1_700_000_100.0)]
    outputs = _written(tmp_path, b"a\nbc\r\n\nd", b"".join(shim.INSTANT.pack(*one) for one in noted))
    assert (await _timed(outputs, "launcher", are_shown=True)).split(b"\n") == [
        b"2023-11-14T22:13:20Z a",
        b"2023-11-14T22:15:00Z bc\r",
        b"2023-11-14T22:21:40Z ",
        b"2023-11-14T22:21:40Z d",
    ]
    assert await _timed(outputs, "launcher", since=1_700_000_050.0) == b"bc\r\n\nd"


@pytest.mark.parametrize(
    "times",
    [
        b"",
        b"\xff" * 1_000,
        b"x" * 15,
        shim.INSTANT.pack(1 << 63, math.nan) + shim.INSTANT.pack(0, math.inf) + shim.INSTANT.pack(3, -1.0),
        b"y" * (2 << 20),
        shim.INSTANT.pack(9, 1e9) + shim.INSTANT.pack(2, 2e9) + shim.INSTANT.pack(9, 1e8),
    ],
)
async def test_instants_when_a_job_wrote_them_itself_do_no_harm(tmp_path: Path, times: bytes) -> None:
    outputs = _written(tmp_path, b"a\nb\n", times)
    lines = (await _timed(outputs, "launcher", are_shown=True, since=0.0)).splitlines()
    assert [line.partition(b" ")[2] for line in lines] in ([b"a", b"b"], [b"b"])


async def test_shim_notes_growth_once_and_readers_move_the_instants_with_what_it_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a" / ".voda" / "replicas" / "launcher"
    home.mkdir(parents=True)
    (tmp_path / "a" / "logs").mkdir()
    output = os.open(tmp_path / "a" / "logs" / "launcher.log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    monkeypatch.setattr(shim, "OUTPUT", output)
    noted = [-1.0, 0.0]
    for letter in (b"a", b"b", b"c"):
        os.write(output, (letter * 9 + b"\n") * 10)
        for _ in range(2):
            shim.trim(str(home), 350, noted)
        noted[1] = 0.0
    shim.trim(str(home), 250, noted)
    times = list(shim.INSTANT.iter_unpack((home / "times").read_bytes()))
    assert [size for size, _ in times] == [100, 200, 300, os.fstat(output).st_size]
    # The last 125 bytes are left, behind a line that says so; what was printed before the third note is gone but for b.
    left = await _timed(LocalOutputs(tmp_path), "launcher", since=(times[1][1] + times[2][1]) / 2)
    assert left == b"c" * 9 + b"\n" + (b"c" * 9 + b"\n") * 9
    everything = await _timed(LocalOutputs(tmp_path), "launcher", since=0.0)
    assert (everything.startswith(b"[voda: output before this was dropped"), everything.count(b"b" * 9)) == (True, 2)
    os.close(output)


async def test_replicas_when_the_disk_does_not_answer_are_not_none_but_unknown_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voda.cluster.local.outputs._READ_S", 0.05)
    answers = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(answers.wait, 60)
        try:
            with pytest.raises(ServerBusy, match="job a: its output was not found in time"):
                await LocalOutputs(tmp_path).replicas("a")
        finally:
            answers.set()
