"""SRJF and Elastic-SRJF: what counts as short, and that nobody passes the maximum."""

from tests.builders import a_job, a_node, a_state
from tests.reasons import said
from voda.domain.state import Estimate
from voda.policies.elastic_srjf import ElasticSrjf
from voda.policies.srjf import Srjf

WORKS = {
    "wide": Estimate(speedup=(0, 1, 2, 3, 4), remaining_s=300.0),
    "narrow": Estimate(speedup=(0, 1, 1.1, 1.2, 1.3), remaining_s=200.0),
}


def test_srjf_when_a_longer_job_requested_more_measures_both_as_requested() -> None:
    jobs = [
        a_job("narrow", max_replicas=4, requested_replicas=1),
        a_job("wide", max_replicas=4, requested_replicas=4),
    ]
    state = a_state(jobs=jobs, nodes=[a_node(gpus=4)], estimates=WORKS)
    assert Srjf().allocate(state, 0.0).replicas == {"wide": 4, "narrow": 0}


def test_srjf_when_nothing_is_known_goes_by_submission() -> None:
    jobs = [a_job("late", submitted_at=2), a_job("early", submitted_at=1), a_job("known", submitted_at=3)]
    estimates = {"known": Estimate(speedup=(0, 1), remaining_s=1e9)}
    answer = Srjf().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=2)], estimates=estimates), 0.0)
    assert answer.replicas == {"known": 1, "early": 1, "late": 0}


def test_srjf_when_a_job_makes_no_headway_serves_it_last() -> None:
    jobs = [a_job("stuck", submitted_at=1), a_job("known", submitted_at=2)]
    estimates = {"stuck": Estimate(speedup=(0, 0), remaining_s=1.0), "known": Estimate(speedup=(0, 1), remaining_s=1e9)}
    answer = Srjf().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=1)], estimates=estimates), 0.0)
    assert answer.replicas == {"known": 1, "stuck": 0}


def test_elastic_srjf_when_min_equals_max_never_hands_out_more() -> None:
    """The ancestor did."""
    jobs = [a_job("rigid", min_replicas=2, max_replicas=2), a_job("narrow", max_replicas=4)]
    answer = ElasticSrjf().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=9)], estimates=WORKS), 0.0)
    assert answer.replicas == {"rigid": 2, "narrow": 4}


def test_elastic_srjf_when_gpus_are_short_serves_the_shortest_on_one_replica_first() -> None:
    jobs = [a_job("wide", max_replicas=4), a_job("narrow", submitted_at=5, max_replicas=4)]
    answer = ElasticSrjf().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=3)], estimates=WORKS), 0.0)
    assert answer.replicas == {"narrow": 2, "wide": 1}
    assert said(answer.reasons["narrow"]) == "starts with 2 workers, both jobs share 3 GPUs, least time left first"
