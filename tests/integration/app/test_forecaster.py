"""The process that makes forecasts, as a real one."""

import asyncio
from contextlib import suppress
from pathlib import Path

from voda.app.forecaster import _process


async def test_process_when_its_user_is_canceled_twice_has_ended_by_then(tmp_path: Path) -> None:
    started: list[asyncio.subprocess.Process] = []
    is_started = asyncio.Event()

    async def use() -> None:
        async with _process(str(tmp_path / "voda.db")) as process:
            started.append(process)
            is_started.set()
            await asyncio.sleep(3600)

    using = asyncio.create_task(use())
    await is_started.wait()
    using.cancel()
    await asyncio.sleep(0)
    using.cancel()
    with suppress(asyncio.CancelledError):
        await using
    assert started[0].returncode is not None
