"""A start on a disk that is full waits for room as a running voda does."""

import asyncio
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from benchmarks.served import command, environment
from tests.needs import missing
from tests.waiting import until_it_is, wait_until
from voda.app import runtime
from voda.app.machine import MachineOptions
from voda.app.service import running
from voda.domain.errors import StoreNotWritable


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that holds eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        missing("a small file system of its own needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Leave no room beside a file."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4_096):
            pass


async def test_start_on_a_full_disk_serves_and_is_found_once_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "ROOM_AGAIN_S", 0.1)
    options = MachineOptions(
        home=disk / "home",
        log=str(tmp_path / "voda.db"),
        environment={"PATH": os.defpath},
        port=0,
        slots=1,
        has_tokens=False,
    )
    await _run_once(options)
    fill(disk / "full")
    async with running(options) as service, aiohttp.ClientSession() as session:
        published = disk / "home" / "server.json"
        assert not published.exists() or not published.read_bytes()
        async with session.get(f"{service.url}/healthz") as answer:
            assert answer.status == 200
        assert f"{published} cannot be written: No space left on device" in service.warning
        (disk / "full").unlink()

        async def is_found() -> bool:
            return published.exists() and json.loads(published.read_text())["url"] == service.url

        await until_it_is(is_found)
        assert service.warning == ""


async def test_start_when_the_log_itself_finds_no_room_waits_for_it_and_fails_for_any_other_reason(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "ROOM_AGAIN_S", 0.1)
    options = MachineOptions(home=disk / "home", environment={"PATH": os.defpath}, port=0, slots=1, has_tokens=False)
    await _run_once(options)
    fill(disk / "full")

    async def starts() -> None:
        async with running(options) as service:
            assert service.url

    starting = asyncio.create_task(starts())
    await until_it_is(lambda: _is_told(caplog))
    assert not starting.done()
    (disk / "full").unlink()
    await starting
    with pytest.raises(StoreNotWritable, match="no rights"):
        await runtime.when_there_is_room(_refused, disk)


async def test_start_for_all_users_on_a_full_disk_is_ready_once_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "ROOM_AGAIN_S", 0.1)
    options = MachineOptions(
        home=disk / "home",
        log=str(tmp_path / "voda.db"),
        environment={"PATH": os.defpath},
        port=0,
        slots=1,
        is_multi_user=True,
        socket=tmp_path / "voda.sock",
    )
    await _run_once(options)
    fill(disk / "full")
    async with running(options) as service:
        await until_it_is(lambda: _is_told(caplog))
        assert service.failure() == "starting: the jobs of pool default are being looked for"
        (disk / "full").unlink()

        async def is_ready() -> bool:
            return not service.failure()

        await until_it_is(is_ready)


async def _run_once(options: MachineOptions) -> None:
    async with running(options) as service:

        async def is_ready() -> bool:
            return not service.failure()

        await until_it_is(is_ready)


async def _is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return "is full: the start waits for room (" in caplog.text


async def _refused() -> None:
    raise StoreNotWritable("no rights")


def test_voda_up_that_has_no_room_for_what_it_prints_serves_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Path("/dev/full").open("wb") as full:
        words = command("up", "--port", "0", "--slots", "1", "--no-tokens", "--single-user")
        voda = subprocess.Popen(words, env=environment(home), stdout=full, stderr=full)
    try:
        wait_until(lambda: (home / "server.json").exists() and _answers(home), within_s=60.0)
        assert voda.poll() is None
    finally:
        voda.terminate()
        voda.wait(timeout=60)


def _answers(home: Path) -> bool:
    url = json.loads((home / "server.json").read_text())["url"]
    with suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
