"""A job that gives way for one that few nodes take is brought together by the same plan, and not by the next one."""

import pytest

from tests.builders import a_job, a_node, a_state
from tests.kube.fit_oracle import pool_of
from tests.unit.planner.fit.test_draws import adopted, planned
from voda.domain.node import PodNeeds
from voda.placement import PLACERS


def test_job_that_spans_once_it_has_given_way_is_together_at_once() -> None:
    nodes = [a_node(name, gpus=gpus, labels={"zone": name}) for name, gpus in (("a", 3), ("b", 1), ("c", 4))]
    wide = a_job("wide", min_replicas=2, max_replicas=3)
    bound = a_job("bound", needs=PodNeeds(selector={"zone": "a"}), submitted_at=1.0)
    view = a_state(jobs=[wide, bound], nodes=nodes)
    plan = planned(view, "elastic-fifo", "steady")
    assert plan.placement == {"wide": ("c",) * 3, "bound": ("a",)}
    assert planned(adopted(view, plan), "elastic-fifo", "steady").placement == plan.placement


@pytest.mark.parametrize("placer", PLACERS)
def test_plan_of_a_drawn_cluster_that_is_made_again_is_the_same(placer: str) -> None:
    for seed in range(800, 860):
        pool = pool_of(seed, placer)
        placement = pool.first_plan().placement
        assert pool.second_plan(placement).placement == placement, seed
