"""FIFO: what was requested, first come first served, small ones passing large ones."""

from tests.builders import a_job, a_node, a_state
from tests.reasons import said, sentences
from voda.policies.fifo import Fifo


def test_fifo_when_the_first_job_does_not_fit_lets_a_small_one_pass() -> None:
    jobs = [
        a_job("large", submitted_at=1, min_replicas=8, max_replicas=8),
        a_job("small", submitted_at=2, min_replicas=1, max_replicas=4, requested_replicas=3),
    ]
    answer = Fifo().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=4)]), 0.0)
    assert answer.replicas == {"large": 0, "small": 3}
    assert sentences(answer.reasons) == {
        "large": "waits: needs 8 GPUs, 1 is free",
        "small": "starts with 3 workers, as requested",
    }


def test_fifo_when_jobs_were_submitted_together_goes_by_name() -> None:
    jobs = [a_job("b"), a_job("a")]
    assert Fifo().allocate(a_state(jobs=jobs, nodes=[a_node(gpus=1)]), 0.0).replicas == {"a": 1, "b": 0}


def test_fifo_when_replicas_hold_several_gpus_charges_each_of_them() -> None:
    jobs = [a_job("a", min_replicas=2, max_replicas=2, gpus_per_replica=4), a_job("b", submitted_at=1)]
    state = a_state(jobs=jobs, nodes=[a_node(gpus=8)], placement={"b": ("n1",)})
    answer = Fifo().allocate(state, 0.0)
    assert answer.replicas == {"a": 2, "b": 0}
    assert said(answer.reasons["b"]) == "preempted: needs 1 GPU, none is free"
