"""Claims about the peer's policies and placer: each rule that, missed, would change the published figures."""

from collections.abc import Mapping, Sequence

from benchmarks.peer.jobs import PeerJobs
from benchmarks.peer.optimus import PeerOptimus
from benchmarks.peer.placer import PeerPlacer
from benchmarks.peer.tiresias import DEMOTE_GPU_S, PeerTiresias
from tests.builders import a_job, a_node, a_spec, a_state
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.simulator.workload import Arrival, Workload
from voda.simulator.workloads.pollux_applications import Application, BatchLimits, Epoch, PolluxProfile
from voda.simulator.workloads.pollux_step_times import StepTimes

BATCH = 12


class InFileOrder:
    """Places jobs as they stand in the view."""

    def order(self, view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
        return list(view.jobs)


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(a_node(f"n{number}", gpus=4) for number in range(count))


def peer_jobs(**iteration_s: Sequence[float]) -> PeerJobs:
    """Return jobs of ten epochs of 100 iterations: job id -> seconds of an iteration on 1, 2, ... replicas."""
    arrivals = []
    for job_id, seconds in iteration_s.items():
        rows = {str(n): [(1, (each, 0.0)), (BATCH, (each, 0.0))] for n, each in enumerate(seconds, start=1)}
        application = Application(
            name="ncf",
            limits=BatchLimits(initial=BATCH, largest=BATCH, local_smallest=1, local_largest=BATCH),
            step_times=StepTimes(rows, {}),
            validation={BATCH: [Epoch(float(epoch), 100 * epoch, 1.0, 1.0) for epoch in range(1, 11)]},
        )
        profile = PolluxProfile(application=application, batch=BATCH)
        arrivals.append(Arrival(spec=a_spec(job_id), submitted_s=0.0, profile=profile))
    return PeerJobs(Workload(name="w", source="test", arrivals=tuple(arrivals), nodes=nodes(1)))


def a_rigid_job(job_id: str, replicas: int, **fields: object) -> Job:
    return a_job(job_id, max_replicas=replicas, requested_replicas=replicas, **fields)


def test_remainder_goes_to_the_emptiest_node() -> None:
    state = a_state(jobs=[a_job("a"), a_job("b")], nodes=nodes(4))
    placed = PeerPlacer(InFileOrder()).place(state, {"a": 6, "b": 6}, 0.0)
    assert placed == {"a": ("n0",) * 4 + ("n1",) * 2, "b": ("n2",) * 4 + ("n3",) * 2}


def test_job_of_the_same_size_keeps_its_nodes_and_all_others_start_from_nothing() -> None:
    before = {"same": ("n1",), "grown": ("n0", "n0"), "gone": ("n2",) * 4}
    state = a_state(jobs=[a_job("grown"), a_job("same")], nodes=nodes(3), placement=before)
    placed = PeerPlacer(InFileOrder()).place(state, {"grown": 3, "same": 1}, 0.0)
    assert placed == {"same": ("n1",), "grown": ("n0",) * 3}


def test_tiresias_when_a_job_does_not_fit_lets_a_smaller_one_pass() -> None:
    state = a_state(jobs=[a_rigid_job("a", 3), a_rigid_job("b", 2), a_rigid_job("c", 1)], nodes=nodes(1))
    assert PeerTiresias(peer_jobs(a=[], b=[], c=[])).allocate(state, 0.0).replicas == {"a": 3, "b": 0, "c": 1}


def test_tiresias_orders_the_lower_queue_by_demotion_and_breaks_ties_by_the_file() -> None:
    low = {"queue_level": 1}
    jobs = [
        a_job("late", **low, queued_since=120.0),
        a_job("y", **low, queued_since=60.0),
        a_job("x", **low, queued_since=60.0),
        a_job("new"),
    ]
    policy = PeerTiresias(peer_jobs(late=[], x=[], y=[], new=[]))
    assert policy.order(a_state(jobs=jobs, nodes=nodes(1)), {}) == ["new", "x", "y", "late"]


def test_tiresias_when_a_job_held_its_gpus_for_16_gpu_hours_demotes_it_at_that_instant() -> None:
    job = a_rigid_job("a", 2, workers={0: "n0", 1: "n0"}, running_s=100.0, counted_at=1_000.0)
    policy, state = PeerTiresias(peer_jobs(a=[])), a_state(jobs=[job], nodes=nodes(1))
    due_at = policy.requeue_due_at(state, 1_000.0)
    assert due_at == 1_000.0 + DEMOTE_GPU_S / 2 - 100.0
    assert policy.requeue(state, due_at - 1.0) == {}
    assert policy.requeue(state, due_at)["a"][0] == 1


def test_tiresias_never_demotes_a_job_that_waits() -> None:
    job = a_rigid_job("a", 2, running_s=DEMOTE_GPU_S)
    assert PeerTiresias(peer_jobs(a=[])).requeue(a_state(jobs=[job], nodes=nodes(1)), 0.0) == {}


def test_optimus_stops_a_job_where_one_more_gpu_does_not_help_even_if_two_would() -> None:
    policy = PeerOptimus(peer_jobs(a=[9.0, 9.0, 1.0, 1.0]))
    state = a_state(jobs=[a_job("a", max_replicas=4)], nodes=nodes(1))
    assert policy.allocate(state, 0.0).replicas == {"a": 1}


def test_optimus_gives_the_next_gpu_to_the_largest_saving_and_the_first_among_equals() -> None:
    policy = PeerOptimus(peer_jobs(a=[9.0, 8.0, 7.0], b=[9.0, 8.0, 7.0], c=[9.0, 7.5, 7.4]))
    jobs = [a_job(job_id, max_replicas=3) for job_id in "abc"]
    assert policy.allocate(a_state(jobs=jobs, nodes=[a_node(gpus=5)]), 0.0).replicas == {"a": 2, "b": 1, "c": 2}


def test_optimus_counts_a_job_in_its_last_epoch_as_nearly_done() -> None:
    policy = PeerOptimus(peer_jobs(a=[9.0, 1.0], b=[9.0, 8.9]))
    jobs = [a_job("a", max_replicas=2, epochs_done=9.0), a_job("b", max_replicas=2)]
    assert policy.allocate(a_state(jobs=jobs, nodes=[a_node(gpus=3)]), 0.0).replicas == {"a": 1, "b": 2}


def test_optimus_when_jobs_outnumber_gpus_serves_the_first_of_the_file() -> None:
    policy = PeerOptimus(peer_jobs(a=[], b=[], c=[]))
    state = a_state(jobs=[a_job(job_id) for job_id in "cba"], nodes=[a_node(gpus=2)])
    assert policy.allocate(state, 0.0).replicas == {"a": 1, "b": 1, "c": 0}


def test_optimus_has_small_jobs_placed_first() -> None:
    policy = PeerOptimus(peer_jobs(a=[], b=[], c=[]))
    assert policy.order(a_state(), {"c": 1, "b": 1, "a": 2}) == ["b", "c", "a"]
