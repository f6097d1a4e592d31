"""Reasons say why workers move, and what it costs a job that its workers span nodes."""

from tests.builders import a_job, a_node, a_state
from tests.reasons import sentences
from voda.domain.job import Job
from voda.domain.state import ClusterState, Estimate
from voda.placement import PLACERS
from voda.planner.registries import Registries
from voda.policies import POLICIES

NODES = [a_node(name, gpus=4) for name in ("n1", "n2")]


def estimated(left_s: float) -> Estimate:
    return Estimate(
        speedup=(0.0, *([1.0] * 8)),
        remaining_s=left_s,
        span_penalty=0.5,
        resize_cost_s=30.0,
    )


def rigid(job_id: str, *nodes: str, size: int = 0, submitted_at: float = 0.0) -> Job:
    size = size or len(nodes)
    return a_job(
        job_id, min_replicas=size, max_replicas=size, workers=dict(enumerate(nodes)), submitted_at=submitted_at
    )


def reasons_of(view: ClusterState) -> dict[str, str]:
    """Return what the plan says of the jobs' places, as sentences less what the policy says."""
    registries = Registries(placers=lambda _name: PLACERS["frugal"])
    plan = registries.decider(view, cause="test")(view, POLICIES["fifo"], 0.0)
    return {job_id: text.rpartition("; ")[2] for job_id, text in sentences(plan.reasons).items()}


def test_job_that_is_brought_together_and_the_one_that_leaves_for_it_say_what_it_costs_and_saves() -> None:
    in_force = {"wide": ("n1", "n1", "n2"), "small": ("n1",), "fourth": ("n1",), "other": ("n2", "n2")}
    jobs = [rigid(job_id, *nodes) for job_id, nodes in in_force.items()]
    estimates = {job_id: estimated({"wide": 1000.0, "small": 500.0}.get(job_id, 10.0)) for job_id in in_force}
    view = a_state(jobs=jobs, nodes=NODES, placement=in_force, estimates=estimates)
    assert {name: text for name, text in reasons_of(view).items() if name in ("wide", "small")} == {
        "wide": "a move costs it 30s and saves 8m 20s: it is on one node",
        "small": "a move costs it 30s, and makes room for wide",
    }


def test_job_that_begins_to_span_says_what_that_costs_it() -> None:
    in_force = {"a": ("n1",) * 3, "b": ("n2",) * 3}
    jobs = [*(rigid(job_id, *nodes) for job_id, nodes in in_force.items()), rigid("new", size=2, submitted_at=9.0)]
    estimates = {job_id: estimated(10.0) for job_id in in_force} | {"new": estimated(100.0)}
    view = a_state(jobs=jobs, nodes=NODES, placement=in_force, estimates=estimates)
    assert reasons_of(view)["new"] == "spans 2 nodes: it ends 50s later so, and a later move would cost it 30s"


def test_job_that_no_node_would_hold_says_so() -> None:
    view = a_state(jobs=[rigid("large", size=6)], nodes=NODES)
    assert reasons_of(view) == {"large": "spans 2 nodes, as none is large enough"}
