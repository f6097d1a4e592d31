"""A forecast can be made in a process of its own, which is how the service makes it."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from tests.builders import Log, a_node, a_spec
from voda.events.types import JobSubmitted, NodeJoined
from voda.projections.live import Live
from voda.simulator.whatif.forecast import Budget, Forecast, forecast_in_process


def test_forecast_made_in_a_spawned_process_comes_back() -> None:
    log, live = Log(), Live()
    log.add(NodeJoined(node=a_node("n1", gpus=1)), at=1_000)
    for job_id in "ab":
        log.add(JobSubmitted(spec=a_spec(job_id, epochs=3)), at=1_001)
    for event in log.events:
        live.apply(event)
    budget = Budget(events=1_000, wall_s=60.0)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        told = process.submit(forecast_in_process, live.dump(), "default", 1_002.0, budget).result(timeout=120)
    assert told == {"a": Forecast(position=1, starts_at=1_002.0), "b": Forecast(position=2)}
