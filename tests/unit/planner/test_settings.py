"""Claims about the settings that steer the planner."""

from typing import ClassVar

import pytest

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import worded
from voda.domain.plan import Allocation
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.placement import PLACERS


class Two:
    """Gives two replicas to everybody."""

    name: ClassVar[str] = "two"
    title: ClassVar[str] = "two"
    paper: ClassVar[str] = "none"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        return Allocation(replicas=dict.fromkeys(view.jobs, 2), reasons=dict.fromkeys(view.jobs, worded("two")))


@pytest.mark.parametrize(("heeds_resize_cost", "replicas"), [(True, 1), (False, 2)])
def test_growth_that_does_not_pay_is_left_out_unless_the_policys_word_stands(
    heeds_resize_cost: bool, replicas: int
) -> None:
    view = a_state(
        jobs=[a_job("a", max_replicas=2, workers={0: "n1"})],
        nodes=[a_node("n1")],
        placement={"a": ("n1",)},
        estimates={"a": Estimate(speedup=linear_speedup(2), remaining_s=10.0, resize_cost_s=60.0)},
        settings=Settings(heeds_resize_cost=heeds_resize_cost),
    )
    plan = decide(view, Two(), PLACERS.choose("steady"), 0.0, cause="tick")
    assert len(plan.placement["a"]) == replicas
