"""Voda on a cluster in memory where everything goes wrong at once, on virtual time: in the end all is as planned.

Each seed is another history of submissions, hands, failures, lost nodes, outages and leaders that are killed.
"""

import logging
from collections.abc import Sequence

import pytest

from tests.builders import Log
from tests.kube.memory_api import Wire
from tests.kube.memory_world import MemoryWorld
from tests.kube.operators.base import Operator
from tests.kube.operators.mpi_v1 import MpiOperatorV1
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.pytorch import PyTorchOperator
from tests.kube.upheaval import Upheaval
from tests.virtual_time import virtually
from voda.app.kubernetes.service import log_event
from voda.events.types import JobFailed, JobProgressed

EVENTS = 60
V2 = (MpiOperatorV2, PyTorchOperator)
V1 = (MpiOperatorV1, PyTorchOperator)


async def live_through(seed: int, operators: Sequence[type[Operator]]) -> None:
    async with MemoryWorld(seed, operators, Wire(seed, longest_s=0.02)) as world:
        upheaval = Upheaval(world, seed)
        try:
            async with upheaval:
                await upheaval.rage(EVENTS)
                await upheaval.calm()
                await upheaval.finish()
        except AssertionError as error:
            log = [f"{event.recorded_at:.2f} {event.data}"[:300] for event in await world.store.read(0, 100_000)]
            story = "\n".join(["", *upheaval.told, "", *log[-60:], "", await world.picture()])
            raise AssertionError(f"seed {seed}: {error}{story}") from error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_cluster_when_all_goes_wrong_comes_to_be_as_planned(seed: int) -> None:
    virtually(live_through(seed, V2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 10))
def test_cluster_of_the_other_operator_when_all_goes_wrong_comes_to_be_as_planned(seed: int) -> None:
    virtually(live_through(seed, V1))


def test_event_is_a_line_with_position_and_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = Log()
    for fact in (JobProgressed(job_id="a", epochs_done=1.0, workers=1), JobFailed(job_id="a", reason="out of\nmemory")):
        log_event(log.add(fact, at=1.0))
    assert caplog.messages == ["job.failed position=2 about=a: failed: out of memory"]
