"""Forecasts are made in a process of their own, which reads the log by itself."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import a_node, a_spec
from tests.waiting import until
from voda.app.forecasts.forecaster import Forecaster
from voda.app.side_process import side_process
from voda.application.read_model import ReadModel
from voda.clock import SystemClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobProgressed, JobSubmitted, NodeJoined, SettingsChanged
from voda.log.factory import open_store


async def forecast_of(path: str, *facts: AnyFact, pools: Sequence[str] = ("default",), jobs: int = 2) -> ReadModel:
    """Return the read model of a log with these facts once so many jobs have a forecast."""
    store, clock = await open_store(path), SystemClock()
    for data in facts:
        fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now())
        await store.append(data.stream, ANY_VERSION, [fact])
    view = ReadModel(store)
    await view.open()
    forecaster = Forecaster(path, view, clock, pools)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forecaster.run())
        await until(lambda: len(view.forecasts) == jobs)
        task.cancel()
    await store.close()
    return view


async def test_forecasts_made_by_the_other_process_reach_the_view(tmp_path: Path) -> None:
    jobs = [JobSubmitted(spec=a_spec(name, epochs=3)) for name in "ab"]
    view = await forecast_of(str(tmp_path / "voda.db"), NodeJoined(node=a_node("n1", gpus=1)), *jobs)
    assert [view.forecasts[name].position for name in "ab"] == [1, 2]
    assert view.forecasts["a"].starts_at == view.forecast_at


async def test_forecasts_when_voda_was_started_in_a_folder_of_another_run_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voda").mkdir()
    (tmp_path / "voda" / "__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    facts = (NodeJoined(node=a_node("n1", gpus=1)), JobSubmitted(spec=a_spec("a", epochs=3)))
    assert (await forecast_of(str(tmp_path / "voda.db"), *facts, jobs=1)).forecasts["a"].position == 1


async def test_forecasts_when_a_job_would_take_longer_than_the_calendar_goes_are_made_of_all_others(
    tmp_path: Path,
) -> None:
    endless = a_spec("a", epochs=1_000_000_000)
    view = await forecast_of(
        str(tmp_path / "voda.db"),
        NodeJoined(node=a_node("n1", gpus=2)),
        JobSubmitted(spec=endless),
        JobSubmitted(spec=a_spec("b", epochs=3)),
        JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=1e9),
        JobProgressed(job_id="b", epochs_done=1, workers=1, epoch_s=60.0),
    )
    assert view.forecasts["a"].finishes_at is None
    assert view.forecasts["b"].finishes_at is not None


async def test_forecasts_of_a_pool_when_that_of_another_fails_are_made_all_the_same(tmp_path: Path) -> None:
    view = await forecast_of(
        str(tmp_path / "voda.db"),
        SettingsChanged(pool="odd", settings={"policy": "gone"}),
        *(NodeJoined(node=a_node(f"n-{pool}", gpus=1, pool=pool)) for pool in ("odd", "even")),
        *(JobSubmitted(spec=a_spec(pool, pool=pool)) for pool in ("odd", "even")),
        pools=("odd", "even"),
        jobs=1,
    )
    assert view.forecasts["even"].starts_at == view.forecast_at


async def test_process_when_the_log_cannot_be_read_says_so_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with side_process("voda.app.forecasts.process") as process, asyncio.timeout(60):
        await process.send(str(tmp_path / "none.db").encode())
        with pytest.raises(EOFError):
            await process.receive()
        assert await process.process.wait() == 1
    assert capfd.readouterr().err == f"voda: no forecast: {tmp_path / 'none.db'}: there is no such log\n"
