"""Sharing measured: cells delay nobody, numbers do, and what is lent is counted."""

import pytest

from tests.unit.simulator.virtual_clusters.drawn_jobs import a_shared, an_arrival, drawn
from voda.domain.settings import Settings
from voda.policies import POLICIES, weighs_restarts
from voda.simulator.engine import SimulationOptions
from voda.simulator.virtual_clusters.experiment import PolicyFigures, figures, run_modes
from voda.simulator.virtual_clusters.modes import Mode, SharedWorkload

NODES = {"a": 2, "b": 1, "c": 2}
AT_ONCE = SimulationOptions(settings=Settings(ratelimit_s=0.0))
"""Plans follow every event, so that none is later because another virtual cluster has just had one."""


async def measured(shared: SharedWorkload, policy: str, *modes: Mode) -> PolicyFigures:
    runs = await run_modes(shared, modes, AT_ONCE, policy=policy)
    return figures(shared, runs, policy=policy, ratelimit_s=0.0)


# One that weighs restarts heeds how long GPUs stay free in a private cluster, which nobody knows of a virtual one.
@pytest.mark.parametrize("policy", [name for name, each in POLICIES.items() if not weighs_restarts(each)])
async def test_cells_when_nothing_is_lent_start_each_job_as_its_private_cluster_does(policy: str) -> None:
    shared = drawn(5, 40, NODES)
    runs = await run_modes(shared, [Mode.PRIVATE, Mode.CELLS], AT_ONCE, policy=policy)
    private, cells = (run.waits for run in runs)
    assert len(cells) == 40
    assert max(wait.start_s for wait in private.values()) > 1000.0
    later_s = {job_id: wait.start_s - private[job_id].start_s for job_id, wait in cells.items()}
    assert max(later_s.values()) < 1e-3


async def test_numbers_when_free_gpus_are_scattered_delay_a_job_that_cells_do_not() -> None:
    small = [an_arrival(f"small-{gpus}-{n}", "b", n, gpus=gpus, runs_s=4000.0) for n, gpus in enumerate((3, 3, 2))]
    whole_node = an_arrival("whole-node", "a", 10.0, gpus=4, runs_s=100.0)
    shared = a_shared([*small, whole_node], {"a": 1, "b": 2})
    result = await measured(shared, "fifo", Mode.PRIVATE, Mode.NUMBERS, Mode.CELLS)
    a = next(each for each in result.clusters if each.name == "a")
    assert (a.anomalies[Mode.NUMBERS].jobs, a.anomalies[Mode.CELLS].jobs) == (1, 0)
    assert a.anomalies[Mode.NUMBERS].worst_job == "whole-node"
    assert a.anomalies[Mode.NUMBERS].worst_s == pytest.approx(4020.0, abs=1.0)
    assert a.queueing_s[Mode.CELLS] == 0.0


async def test_idle_cells_when_lent_and_taken_back_are_counted_with_what_was_lost() -> None:
    borrower = an_arrival("borrower", "a", 0.0, gpus=4, runs_s=4000.0, most=8)
    owner = an_arrival("owner", "b", 700.0, gpus=4, runs_s=600.0)
    shared = a_shared([borrower, owner], {"a": 1, "b": 1})
    result = await measured(shared, "elastic-fifo", Mode.PRIVATE_ELASTIC, Mode.CELLS_ELASTIC)
    private, lent = result.modes
    assert (private.borrowed_gpu_h, private.reclaims) == (0.0, 0)
    assert lent.reclaims == 1
    assert lent.borrowed_gpu_h >= 4 * 700.0 / 3600.0
    # It shrinks to 4 GPUs and restarts in 30 s; killed, it would lose what 8 GPUs did since a checkpoint, and a start.
    assert lent.lost_gpu_h == pytest.approx(4 * 30.0 / 3600.0)
    assert lent.lost_by_kill_gpu_h > 8 * 30.0 / 3600.0
    assert lent.anomalies is not None
    assert lent.anomalies.jobs == 0
    assert lent.utilisation > private.utilisation


async def test_reclaims_when_jobs_shrink_lose_less_than_a_quarter_of_what_killing_them_would() -> None:
    result = await measured(drawn(5, 60, NODES), "elastic-fifo", Mode.CELLS_ELASTIC)
    (lent,) = result.modes
    assert lent.reclaims >= 5
    assert 0.0 < lent.lost_gpu_h <= lent.lost_by_kill_gpu_h / 4
