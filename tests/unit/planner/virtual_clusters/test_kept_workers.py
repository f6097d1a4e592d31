"""Decisions with what is kept from the ones before, and without it."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.planner.virtual_clusters.drawn import NAMES, STEPS, a_new_pool
from tests.unit.planner.virtual_clusters.pools import replan, replanned
from voda.cells.gangs import GangRequest, WorkerCells
from voda.domain.cells import GangAllocation, GangPod
from voda.domain.state import ClusterState
from voda.planner.registries import Registries
from voda.planner.virtual_clusters import CellPlanner
from voda.planner.virtual_clusters.recovery import recover

ROOT = Path(__file__).parents[4]
DECISION = """
from tests.unit.planner.virtual_clusters.drawn import a_new_pool
from tests.unit.planner.virtual_clusters.pools import replan
pool = a_new_pool()
pool.take("cordon", "n1")
pool.take("cordon", "n3")
job = {"cluster": "vision", "priority": 0, "min_replicas": 1, "more": 2, "gpus_per_replica": 2, "is_pinned": False}
pool.take("submit", job)
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
def test_plan_when_made_with_what_is_kept_is_the_one_made_without(
    steps: list[Any], gangs: Mapping[str, GangAllocation], pods_come: int
) -> None:
    planner = CellPlanner()
    registries = Registries(in_cells=planner)
    states: list[ClusterState] = []
    kept = []
    pool = a_new_pool()
    for number, step in enumerate(steps):
        pool.take(*step)
        if number == pods_come:
            pool.state = replace(pool.state, gangs=gangs)
        states.append(pool.state)
        book = recover(pool.state, kept=planner.kept_workers(pool.state)).book
        kept.append((replan(pool.state, registries), book))
        pool.state = replanned(pool.state)
    for state, (plan, book) in zip(states, kept, strict=True):
        assert replan(state) == plan
        rebuilt = recover(state).book
        assert rebuilt == book
        assert list(rebuilt.gangs) == list(book.gangs)


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
    job = {"cluster": "vision", "priority": 0, "min_replicas": 1, "more": 2, "gpus_per_replica": 2, "is_pinned": False}
    pool.take("submit", job)
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
