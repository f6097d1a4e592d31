"""Forecasts are made in a process of their own, which reads the log by itself."""

import asyncio
from pathlib import Path

from tests.builders import a_node, a_spec
from tests.waiting import until
from voda.api.view import View
from voda.app.forecaster import Forecaster
from voda.clock import SystemClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.opening import open_store
from voda.events.types import AnyFact, JobSubmitted, NodeJoined


async def test_forecasts_made_by_the_other_process_reach_the_view(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "voda.db"), SystemClock()
    store = await open_store(path)
    facts: list[AnyFact] = [JobSubmitted(spec=a_spec(name, epochs=3)) for name in "ab"]
    for data in (NodeJoined(node=a_node("n1", gpus=1)), *facts):
        fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now())
        await store.append(data.stream, ANY_VERSION, [fact])
    view = View(store)
    await view.open()
    forecaster = Forecaster(path, view, clock, ("default",))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(forecaster.run())
        await until(lambda: len(view.forecasts) == 2)
        task.cancel()
    await store.close()
    assert [view.forecasts[name].position for name in "ab"] == [1, 2]
    assert view.forecasts["a"].starts_at == view.forecast_at
