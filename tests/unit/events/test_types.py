"""What a fact says about itself: whether it makes a plan due, and whether it makes the cluster stale."""

from typing import get_args

from voda.events.records import Data
from voda.events.types import AnyFact, Decision, Intent, Observation


def _facts() -> set[type[Data]]:
    return {fact for union in (Intent, Observation, Decision) for fact in get_args(union)}


def test_facts_when_listed_are_all_that_the_log_knows_and_have_a_type_each() -> None:
    assert _facts() == set(get_args(AnyFact))
    assert len({fact.TYPE for fact in _facts()}) == len(_facts())


def test_facts_when_they_change_jobs_nodes_or_settings_make_a_plan_due() -> None:
    assert {fact.TYPE for fact in _facts() if not fact.MAKES_PLAN_DUE} == {
        "action.failed",
        "gang.joined",
        "job.folder_deleted",
        "job.progressed",
        "job.registered",
        "job.silent",
        "job.stalled",
        "plan.adopted",
        "program.failed",
        "worker.exited",
        "worker.gpu_sick",
        "worker.started",
    }


def test_facts_when_neither_plan_nor_cluster_changes_leave_the_cluster_fresh() -> None:
    assert {fact.TYPE for fact in _facts() if not fact.MAKES_CLUSTER_STALE} == {
        "action.failed",
        "gang.joined",
        "gang.left",
        "gang.placed",
        "job.backed_off",
        "job.halt_requested",
        "job.folder_deleted",
        "job.progressed",
        "job.registered",
        "job.resume_requested",
        "job.silent",
        "job.submitted",
        "node.drain_requested",
        "node.room_changed",
        "node.undrain_requested",
        "program.failed",
        "share.assigned",
        "share.released",
        "share.request_withdrawn",
        "share.requested",
        "virtual_clusters.applied",
        "worker.gpu_sick",
        "worker.refused",
    }
