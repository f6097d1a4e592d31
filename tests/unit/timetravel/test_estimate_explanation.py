"""What users read of what is believed of their job."""

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.api.presenters.explanations import explanation_of
from voda.cli.render.explanation import estimate_text
from voda.domain.state import Belief, Estimate
from voda.planner.registries import Registries
from voda.policies import POLICIES
from voda.timetravel.explanation import JobExplanation, explain_live


def explained(estimate: Estimate) -> JobExplanation:
    job = a_job("a", max_replicas=4, requested_replicas=2)
    state = a_state(jobs=[job], nodes=[a_node("n1", gpus=4)], estimates={"a": estimate})
    return explain_live(state, "a", 100.0, policies=POLICIES, decide=Registries().decider(state, cause="test"))


def test_estimate_is_said_with_how_it_is_known_and_how_far_off_it_may_be() -> None:
    estimate = Estimate(
        speedup=(0.0, 1.0, 1.9),
        speedup_belief=Belief("measured", 1.05),
        remaining_s=7200.0,
        remaining_belief=Belief("category", 1.5),
        length_source="category",
        resize_cost_s=31.0,
        resize_cost_belief=Belief("declared"),
    )
    found = explanation_of(replace(explained(estimate), doubt="the last report is not believed: it fell")).estimate
    assert found is not None
    assert estimate_text(found) == (
        "epochs not declared (by its category), 2h 00m of work on one replica (by its category, within"
        " x1.50), x1.9 on those requested (by its own reports, within x1.05), 31 s a restart (as set);"
        " the last report is not believed: it fell"
    )


def test_estimate_of_which_nothing_is_known_has_no_figure() -> None:
    found = explanation_of(explained(Estimate(speedup=(0.0, 1.0)))).estimate
    assert found is not None
    assert (found.remaining_s.value, found.remaining_s.known_by, found.remaining_s.spread) == (None, "assumed", None)
    assert estimate_text(found).startswith("work left unknown, x1 on those requested (assumed)")
