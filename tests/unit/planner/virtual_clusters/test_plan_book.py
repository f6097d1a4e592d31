"""The book that follows the plans of a pool, against the one that is made anew of each."""

import dataclasses
import gc
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.planner.virtual_clusters.drawn import NAMES, STEPS, a_new_pool
from tests.unit.planner.virtual_clusters.pools import reached, replan, replanned
from voda.cells.gangs import GangRequest, WorkerCells
from voda.domain.cells import GangAllocation, GangPod
from voda.planner.candidates import candidates_of
from voda.planner.fit.node_fit import with_fit
from voda.planner.registries import Registries
from voda.planner.virtual_clusters import CellPlanner
from voda.planner.virtual_clusters.cell_draft import CellDraft
from voda.planner.virtual_clusters.plan_book import PlanBook
from voda.planner.virtual_clusters.pool_jobs import PoolJobs, Rests
from voda.planner.virtual_clusters.recovery import recover

JOB = {
    "cluster": "vision",
    "priority": 0,
    "min_replicas": 1,
    "more": 2,
    "step": 1,
    "gpus_per_replica": 2,
    "is_pinned": False,
}
ROOT = Path(__file__).parents[4]
DECISION = """
from tests.unit.planner.virtual_clusters.drawn import a_new_pool
from tests.unit.planner.virtual_clusters.pools import replan
from tests.unit.planner.virtual_clusters.test_plan_book import JOB
pool = a_new_pool()
pool.take("cordon", "n1")
pool.take("cordon", "n3")
pool.take("submit", JOB)
print(replan(pool.state))
"""


@st.composite
def pods(draw: st.DrawFn) -> Mapping[str, GangAllocation]:
    """Draw a gang of one pod on a node, with a guarantee or without."""
    node, quota = draw(st.sampled_from(NAMES)), draw(st.sampled_from(("", "node")))
    devices = tuple(range(draw(st.sampled_from((1, 2, 4)))))
    request = GangRequest(
        name="pods", virtual_cluster="vision", members=((1, len(devices)),), priority=0 if quota else -1
    )
    cells = WorkerCells(node=node, devices=devices, chain="rack", quota=quota)
    return {"pods": GangAllocation(request=request, placement=(cells,), pods={0: GangPod(uid="u", key="ml/pod")})}


@settings(max_examples=60)
@given(STEPS, pods(), st.integers(0, 20))
def test_book_when_anything_happened_is_the_one_that_is_made_anew(
    steps: list[Any], gangs: Mapping[str, GangAllocation], pods_come: int
) -> None:
    planner = CellPlanner()
    registries = Registries(in_cells=planner)
    pool = a_new_pool()
    for number, step in enumerate(steps):
        pool.take(*step)
        if number == pods_come:
            pool.state = replace(pool.state, gangs=gangs)
        view = candidates_of(pool.state, 0.0, fitted=with_fit).view
        followed = planner.recover(view)
        anew = recover(view)
        assert followed.book == anew.book
        assert (followed.workers, followed.touched, followed.sure) == (anew.workers, anew.touched, anew.sure)
        assert (followed.mixed, followed.usable) == (anew.mixed, anew.usable)
        assert jobs_of(followed) == jobs_of(anew)
        assert replan(pool.state, registries) == replan(pool.state)
        pool.state = replanned(pool.state)


def test_book_when_a_plan_changes_little_is_not_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, planner = a_new_pool(), CellPlanner()
    for _ in range(3):
        pool.take("submit", JOB)
        pool.state = replanned(pool.state)
    planner.recover(pool.state)
    monkeypatch.setattr(PlanBook, "_make", lambda *_: pytest.fail("it was made anew"))
    for step in (("end", 0), ("submit", JOB), ("cordon", "n1"), ("mend", "n1"), ("reach", None)):
        pool.take(*step)
        assert planner.recover(pool.state).guaranteed("j2")
        monkeypatch.undo()
        pool.state = replanned(pool.state)
        monkeypatch.setattr(PlanBook, "_make", lambda *_: pytest.fail("it was made anew"))


def test_plan_when_a_full_node_falls_silent_is_that_of_a_service_that_has_just_started() -> None:
    pool, registries = a_new_pool(), Registries()
    pool.take("submit", {**JOB, "more": 0, "gpus_per_replica": 4})
    pool.state = reached(replanned(pool.state))
    replan(pool.state, registries)
    ((node,),) = pool.state.plan.placement.values()
    # What it has is what is held there: no other than an open node has.
    pool.take("silence", node)
    for _ in range(2):
        pool.take("submit", {**JOB, "priority": 5, "more": 4, "gpus_per_replica": 4})
        assert replan(pool.state, registries) == replan(pool.state)


def test_plan_when_a_gang_of_pods_loses_its_guarantee_to_a_job_is_made() -> None:
    pool = a_new_pool()
    pool.take("submit", {**JOB, "more": 0, "priority": 5})
    pool.state = reached(replanned(pool.state))
    # The job has the one quota cell of its virtual cluster already.
    ((node,),) = pool.state.plan.placement.values()
    other = next(name for name in NAMES if name != node)
    request = GangRequest(name="pods", virtual_cluster="vision", members=((1, 4),), priority=0)
    cells = WorkerCells(node=other, devices=(0, 1, 2, 3), chain="rack", quota="node")
    gang = GangAllocation(request=request, placement=(cells,), pods={0: GangPod(uid="u", key="ml/pod")})
    pool.state = replace(pool.state, gangs={"pods": gang})
    pool.take("submit", JOB)
    pool.state = replanned(pool.state)
    assert pool.state.plan.placement["j1"] == (node,)
    assert recover(pool.state).book.gangs["pods"].downgraded_by == "j1#0"


def test_book_when_it_failed_on_the_way_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, planner = a_new_pool(), CellPlanner()
    pool.take("submit", JOB)
    planner.recover(pool.state)
    pool.state = replanned(pool.state)
    with monkeypatch.context() as patch:
        patch.setattr(PlanBook, "_come", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            planner.recover(pool.state)
    assert planner.recover(pool.state).book == recover(pool.state).book


def test_plan_when_another_process_hashes_names_otherwise_is_the_same() -> None:
    plans = set()
    for seed in ("1", "2", "3"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", DECISION]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        plans.add(run.stdout)
    assert len(plans) == 1


def test_draft_when_nobody_uses_it_any_longer_is_gone_without_a_garbage_collection() -> None:
    pool = a_new_pool()
    pool.take("submit", JOB)
    pool.state = replanned(pool.state)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        draft = recover(pool.state)
        assert draft.guaranteed("j1")
        there = weakref.ref(draft)
        del draft
        assert there() is None
    finally:
        if was_enabled:
            gc.enable()


def jobs_of(draft: CellDraft) -> PoolJobs:
    """Return what is kept of the jobs, but for what was asked of them last."""
    by_quota = {quota: jobs for quota, jobs in draft.jobs.by_quota.items() if jobs.jobs}
    return dataclasses.replace(draft.jobs, rests=Rests(), by_quota=by_quota)
