"""Forecasts are made in a process of their own, which reads the log by itself."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from tests.builders import a_node, a_spec
from tests.waiting import until
from voda.app.forecast_process import Question, with_header
from voda.app.forecaster import Forecaster
from voda.application.read_model import ReadModel
from voda.clock import SystemClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobSubmitted, NodeJoined
from voda.log.factory import open_store


async def test_forecasts_made_by_the_other_process_reach_the_view(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "voda.db"), SystemClock()
    store = await open_store(path)
    facts: list[AnyFact] = [JobSubmitted(spec=a_spec(name, epochs=3)) for name in "ab"]
    for data in (NodeJoined(node=a_node("n1", gpus=1)), *facts):
        fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now())
        await store.append(data.stream, ANY_VERSION, [fact])
    view = ReadModel(store)
    await view.open()
    forecaster = Forecaster(path, view, clock, ("default",))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forecaster.run())
        await until(lambda: len(view.forecasts) == 2)
        task.cancel()
    await store.close()
    assert [view.forecasts[name].position for name in "ab"] == [1, 2]
    assert view.forecasts["a"].starts_at == view.forecast_at


async def test_process_when_who_asked_is_gone_ends_without_a_word(tmp_path: Path) -> None:
    path = str(tmp_path / "voda.db")
    await (await open_store(path)).close()
    question = Question(pool="default", position=0, now=0.0)
    asked = with_header(path.encode()) + with_header(msgspec.msgpack.encode(question))
    answers, nobody = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voda.app.forecast_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=nobody,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(nobody)
    os.close(answers)
    async with asyncio.timeout(60):
        _, said = await process.communicate(asked)
    assert said == b""
    assert process.returncode == 0


async def test_process_when_the_log_cannot_be_read_says_so_in_one_sentence(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voda.app.forecast_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said = await process.communicate(with_header(str(tmp_path / "none.db").encode()))
    assert (process.returncode, said[0]) == (1, b"")
    assert said[1].decode() == f"voda: no forecast: {tmp_path / 'none.db'}: there is no such log\n"
