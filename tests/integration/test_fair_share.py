"""One user floods a pool, another comes later: how long the other waits, in a simulation and in hindsight."""

from itertools import pairwise
from pathlib import Path

import pytest

from voda.controller.follower import catch_up
from voda.controller.triggers import USERS_TURN
from voda.domain.settings import Settings
from voda.events.envelope import Event
from voda.events.types import PlanAdopted
from voda.projections.history import History
from voda.projections.usage import Usage
from voda.simulator.engine import Simulation, SimulationOptions, SimulationRun
from voda.simulator.whatif.comparison import gain_s
from voda.simulator.whatif.what_if import AlternativePolicy, compare_with
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import parse_nodes
from voda.timetravel.verify import verify

POLICIES = ("fifo", "elastic-fifo", "tiresias")


async def a_run(tmp_path: Path, policy: str, fair_share: str) -> SimulationRun:
    """Return a run of 40 jobs of ann, of an hour each, and a short one of bob a minute later, on four GPUs."""
    path = tmp_path / "flood.csv"
    rows = [f"a{number}x,0,6,600,ann" for number in range(40)]
    path.write_text("\n".join(["name,submitted_s,epochs,epoch_s,user", *rows, "b,60,2,300,bob"]))
    settings = Settings(policy=policy, fair_share=fair_share)
    workload = load_workload(str(path), nodes=parse_nodes("1x4"))
    return await Simulation(workload, SimulationOptions(settings=settings)).run()


async def waited_s(run: SimulationRun) -> dict[str, float]:
    history = History()
    await catch_up(run.store, [history], after=0)
    return {job.job_id: job.queueing_s for job in history.finished}


@pytest.mark.parametrize("policy", POLICIES)
async def test_job_of_another_user_waits_minutes_where_users_take_turns_and_hours_else(
    tmp_path: Path, policy: str
) -> None:
    fair, without = await a_run(tmp_path, policy, "users"), await a_run(tmp_path, policy, "")
    assert (await waited_s(fair))["b"] < 300.0
    assert (await waited_s(without))["b"] > 4 * 3600.0
    assert len(await waited_s(fair)) == len(await waited_s(without)) == 41
    assert (await verify(fair.store)).difference is None


async def test_hindsight_shows_what_fair_shares_would_have_done(tmp_path: Path) -> None:
    recorded = await a_run(tmp_path, "fifo", "")
    told = await compare_with(recorded.store, 0, AlternativePolicy(policy="fifo", fair_share="users"))
    assert [shift.job_id for shift in told.winners] == ["b"]
    assert gain_s(told.winners[0]) > 4 * 3600.0


async def test_turns_change_by_time_alone_and_seldom(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    rows = [f"{user}{number}x,0,24,10800,{user}" for user in ("ann", "bob") for number in range(3)]
    path.write_text("\n".join(["name,submitted_s,epochs,epoch_s,user", *rows]))
    settings = Settings(policy="fifo", fair_share="users")
    workload = load_workload(str(path), nodes=parse_nodes("1x3"))
    run = await Simulation(workload, SimulationOptions(settings=settings)).run()
    # No job ends within three days.
    usage, turns = Usage(workload.begins_at, workload.begins_at + 3 * 86_400.0), list[float]()

    def see(event: Event) -> None:
        if isinstance(event.data, PlanAdopted) and event.data.cause == USERS_TURN:
            turns.append(event.recorded_at)

    await catch_up(run.store, [usage], after=0, on_event=see)
    usage.close()
    ann, bob = (row.gpu_s for row in usage.rows("user"))
    assert abs(ann - bob) < 0.1 * (ann + bob)
    assert turns
    assert min(after - before for before, after in pairwise(turns)) >= 3600.0
