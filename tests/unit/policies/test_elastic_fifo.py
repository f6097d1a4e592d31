"""Elastic-FIFO: minimum first, then round robin up to the maximum."""

from hypothesis import given

from tests.builders import a_job, a_node, a_state
from tests.reasons import sentences
from tests.views import views
from voda.domain.state import ClusterState
from voda.policies.elastic_fifo import ElasticFifo
from voda.policies.toolkit.order import by_submission


def test_elastic_fifo_when_gpus_are_left_over_deals_them_in_turn() -> None:
    jobs = [a_job(name, submitted_at=i, max_replicas=most) for i, (name, most) in enumerate((("a", 8), ("b", 2)))]
    state = a_state(jobs=jobs, nodes=[a_node(gpus=7)], placement={"a": ("n1", "n1"), "b": ("n1", "n1", "n1")})
    answer = ElasticFifo().allocate(state, 0.0)
    assert answer.replicas == {"a": 5, "b": 2}
    assert sentences(answer.reasons) == {
        "a": "grown from 2 to 5 workers: both jobs share 7 GPUs, first submitted first",
        "b": "shrunk from 3 to 2 workers: both jobs share 7 GPUs, first submitted first",
    }


def test_elastic_fifo_when_a_large_replica_does_not_fit_gives_to_the_next() -> None:
    jobs = [a_job("a", max_replicas=3, gpus_per_replica=4), a_job("b", submitted_at=1, max_replicas=9)]
    assert ElasticFifo().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=8)]), 0.0).replicas == {"a": 1, "b": 4}


@given(views())
def test_elastic_fifo_when_compared_with_one_replica_at_a_time_deals_the_same(view: ClusterState) -> None:
    jobs = [job.spec for job in by_submission(view)]
    free, dealt = view.capacity_gpus, dict.fromkeys((spec.job_id for spec in jobs), 0)
    for spec in jobs:
        if spec.min_replicas * spec.gpus_per_replica <= free:
            dealt[spec.job_id] = spec.min_replicas
            free -= spec.min_replicas * spec.gpus_per_replica
    gave = True
    while gave:
        gave = False
        for spec in jobs:
            if 0 < dealt[spec.job_id] < spec.max_replicas and spec.gpus_per_replica <= free:
                dealt[spec.job_id] += 1
                free -= spec.gpus_per_replica
                gave = True
    assert ElasticFifo().allocate(view, 0.0).replicas == dealt


def test_elastic_fifo_when_gpus_are_left_over_gives_a_large_job_its_maximum_and_no_more() -> None:
    jobs = [a_job("a", max_replicas=300), a_job("b", submitted_at=1, max_replicas=400)]
    answer = ElasticFifo().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=1_000)]), 0.0)
    assert answer.replicas == {"a": 300, "b": 400}
