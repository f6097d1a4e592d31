"""From any state of the cluster to any plan that fits, without ever promising a GPU twice."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.cluster.port import Observed
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.node import Node
from voda.domain.plan import Action, HaltJob, Placement, ResizeJob, StartJob, StopJob, places
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState, Estimate
from voda.events.types import JobCompleted
from voda.reconcilers.diff import diff

Workers = Mapping[str, Mapping[int, str]]
GPUS = {name: Gpus(count) for name, count in {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "z": 0, "ended": 1}.items()}
"""GPUs per worker of every job of these tests."""


def seen(workers: Workers, nodes: Sequence[Node]) -> Observed:
    return Observed(
        nodes={node.name: node for node in nodes},
        workers={job_id: at for job_id, at in workers.items() if at},
        gpus_per_replica=GPUS,
    )


def wanted(placement: Placement, canceled: str = "") -> ClusterState:
    """A view in which all jobs but `ended` are live, submitted in the order of their names."""
    jobs = [
        a_job(
            job_id,
            gpus_per_replica=gpus,
            submitted_at=float(ord(job_id)),
            is_canceling=job_id == canceled,
        )
        for job_id, gpus in GPUS.items()
        if job_id != "ended"
    ]
    estimates = {job_id: Estimate(speedup=(0.0, 1.0), resize_cost_s=60.0) for job_id in GPUS}
    return a_state(jobs=jobs, placement=placement, estimates=estimates)


def at(*nodes: str) -> dict[int, str]:
    return dict(enumerate(nodes))


def actions(workers: Workers, placement: Placement, nodes: int = 2) -> tuple[Action, ...]:
    """What is to be done on nodes of two GPUs."""
    return diff(wanted(placement), seen(workers, [a_node(f"n{index}", gpus=2) for index in range(1, nodes + 1)]))


# ---- the order of things, and who waits


def test_diff_when_all_is_as_planned_then_nothing_is_done() -> None:
    assert actions({"a": at("n1", "n2")}, {"a": ("n1", "n2")}) == ()


def test_diff_when_a_job_needs_no_gpu_then_it_starts_where_others_hold_more_than_all_of_them() -> None:
    held = {"c": at("n1", "n1", "n1")}
    assert actions(held, {"c": ("n1",) * 3, "z": ("n1",)}) == (StartJob(job_id="z", nodes=("n1",)),)


def test_diff_when_workers_belong_to_no_live_job_then_they_are_stopped() -> None:
    assert actions({"ended": at("n1")}, {"ended": ("n1",)}) == (StopJob(job_id="ended", reason="unknown"),)


def test_diff_when_a_job_is_being_canceled_then_it_is_stopped_although_planned() -> None:
    state = wanted({"a": ("n1",)}, canceled="a")
    assert diff(state, seen({"a": at("n1")}, [a_node("n1")])) == (StopJob(job_id="a", reason="canceled"),)
    assert diff(state, seen({}, [a_node("n1")])) == ()


def test_diff_when_a_job_waits_for_room_and_has_no_place_any_more_then_it_is_halted() -> None:
    observed = replace(seen({"a": at("n1")}, [a_node("n1")]), starting=["b", "c", "ended"])
    assert diff(wanted({"a": ("n1",), "b": ("n1",)}, canceled="b"), observed) == (
        StopJob(job_id="b", reason="canceled"),
        HaltJob(job_id="c"),
        StopJob(job_id="ended", reason="unknown"),
    )


def test_diff_when_a_job_waits_for_room_at_its_place_then_it_is_told_so_again() -> None:
    observed = replace(seen({}, [a_node("n1")]), starting=["a"])
    assert diff(wanted({"a": ("n1",)}), observed) == (StartJob(job_id="a", nodes=("n1",)),)


def test_diff_when_the_cluster_goes_on_by_itself_then_it_is_not_told_again_and_the_room_is_kept() -> None:
    state = wanted({"a": ("n1", "n1"), "d": ("n1",), "e": ("n2",)})
    observed = replace(
        seen({}, [a_node("n1", gpus=2), a_node("n2", gpus=2)]), underway={"a": ("n1", "n1"), "e": ("n1",)}
    )
    assert diff(state, observed) == (StartJob(job_id="e", nodes=("n2",)),)


def test_diff_when_a_job_has_ended_and_the_log_does_not_know_yet_then_it_is_not_started_again() -> None:
    ended = replace(seen({}, [a_node("n1")]), ended={"a": JobCompleted(job_id="a")})
    assert diff(wanted({"a": ("n1",), "b": ("n1",)}), ended) == (StartJob(job_id="b", nodes=("n1",)),)


def test_diff_when_a_live_job_has_no_place_then_it_is_halted() -> None:
    assert actions({"a": at("n1")}, {}) == (HaltJob(job_id="a"),)


def test_diff_when_a_job_is_canceled_at_once_then_it_is_killed() -> None:
    state = wanted({}, canceled="a")
    state = replace(state, jobs={"a": replace(state.jobs["a"], is_killed=True)})
    assert diff(state, seen({"a": at("n1")}, [a_node("n1")])) == (StopJob(job_id="a", reason="canceled", is_kill=True),)


def test_diff_when_a_job_without_a_place_is_overdue_then_it_is_killed() -> None:
    observed = seen({"a": at("n1"), "b": at("n1")}, [a_node("n1")])
    state = replace(wanted({"b": ("n1",)}), overdue=frozenset({"a", "b"}))
    assert diff(state, observed) == (HaltJob(job_id="a", is_kill=True),)


def test_diff_when_gpus_are_not_free_yet_then_a_start_waits_whole() -> None:
    assert actions({"a": at("n1", "n1")}, {"b": ("n1", "n2")}) == (HaltJob(job_id="a"),)
    assert actions({}, {"b": ("n1", "n2")}) == (StartJob(job_id="b", nodes=("n1", "n2")),)


def test_diff_when_actions_of_every_kind_are_due_then_what_frees_comes_first() -> None:
    workers = {"a": at("n1", "n1"), "b": at("n2", "n2"), "c": at("n3"), "d": at("n4")}
    plan: Placement = {"b": ("n2",), "c": ("n5", "n5"), "d": ("n6",), "e": ("n7",)}
    assert actions(workers, plan, nodes=7) == (
        HaltJob(job_id="a"),
        ResizeJob(job_id="b", nodes=("n2",)),
        ResizeJob(job_id="c", nodes=("n5", "n5")),
        ResizeJob(job_id="d", nodes=("n6",)),
        StartJob(job_id="e", nodes=("n7",)),
    )


def test_diff_when_a_gpu_is_promised_then_nobody_else_gets_it() -> None:
    plan: Placement = {"a": ("n1",), "b": ("n1",), "c": ("n1",)}
    assert actions({"a": at("n1")}, plan) == (StartJob(job_id="b", nodes=("n1",)),)


def test_diff_when_a_worker_died_then_its_place_is_filled_again() -> None:
    assert actions({"a": {1: "n2"}}, {"a": ("n1", "n2")}) == (ResizeJob(job_id="a", nodes=("n1", "n2")),)


def with_done(state: ClusterState, job_id: str, *done: int) -> ClusterState:
    return replace(state, jobs={**state.jobs, job_id: replace(state.jobs[job_id], done=done)})


def test_diff_when_replicas_are_done_then_nothing_is_missing_of_them() -> None:
    nodes = [a_node("n1", gpus=2)]
    state = with_done(wanted({"a": ("n1",) * 3}), "a", 0, 2)
    assert diff(state, seen({"a": {1: "n1"}}, nodes)) == ()
    assert diff(state, replace(seen({"a": {1: "n1"}}, nodes), sizes={"a": 5})) == (
        ResizeJob(job_id="a", nodes=("n1",) * 3),
    )


def test_diff_when_replicas_are_done_then_the_others_need_room_for_themselves_alone() -> None:
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=1)]
    state = with_done(wanted({"a": ("n2", "n2", "n2"), "b": ("n1",), "c": ("n1",)}), "a", 0, 1)
    workers = {"a": {2: "n1"}, "b": at("n1")}
    assert diff(state, seen(workers, nodes)) == (ResizeJob(job_id="a", nodes=("n2",) * 3),)


def test_diff_when_a_job_shrinks_over_replicas_that_are_done_then_they_are_no_hole() -> None:
    workers = {"a": {0: "n1", 2: "n1", 3: "n2"}, "b": at("n2")}
    state = with_done(wanted({"a": ("n1", "n2", "n1"), "b": ("n2",)}), "a", 1)
    nodes = [a_node(f"n{index}", gpus=2) for index in (1, 2)]
    assert diff(state, seen(workers, nodes)) == (ResizeJob(job_id="a", nodes=("n1", "n2", "n1")),)


def test_diff_when_a_job_shrinks_over_a_hole_that_cannot_be_filled_yet_then_the_others_stay() -> None:
    workers = {"a": {0: "n1", 2: "n1", 3: "n2"}, "b": at("n2")}
    plan = {"a": ("n1", "n2", "n1"), "b": ("n2",)}
    assert actions(workers, plan) == (ResizeJob(job_id="a", nodes=("n1", "", "n1")),)
    assert actions({**workers, "a": {0: "n1", 2: "n1"}}, plan) == (ResizeJob(job_id="a", nodes=("n1", "n2", "n1")),)
    assert actions({"a": {0: "n1", 3: "n2"}, "b": at("n2", "n1")}, plan) == (
        ResizeJob(job_id="a", nodes=("n1",), planned=3),
        ResizeJob(job_id="b", nodes=("n2",)),
    )


def test_diff_when_the_node_of_a_plan_is_gone_then_the_job_waits() -> None:
    assert actions({}, {"a": ("n9",)}) == ()


# ---- sizes that somebody set by hand


def resized(workers: Workers, placement: Placement, sizes: Mapping[str, int], canceled: str = "") -> Sequence[Action]:
    observed = replace(seen(workers, [a_node("n1"), a_node("n2")]), sizes=sizes)
    return diff(wanted(placement, canceled), observed)


def test_diff_when_a_job_was_scaled_by_hand_then_it_is_told_the_planned_size_again() -> None:
    again = (ResizeJob(job_id="a", nodes=("n1", "n2")),)
    assert resized({"a": at("n1", "n2")}, {"a": ("n1", "n2")}, {"a": 5}) == again
    assert resized({"a": at("n1", "n2")}, {"a": ("n1", "n2")}, {"a": 1}) == again
    assert resized({"a": at("n1", "n2")}, {"a": ("n1", "n2")}, {"a": 2}) == ()


def test_diff_when_jobs_were_scaled_by_hand_then_those_grown_are_shrunk_before_those_shrunk_grow() -> None:
    workers = {"a": at("n1"), "b": at("n2")}
    assert resized(workers, {"a": ("n1",), "b": ("n2",)}, {"a": 0, "b": 2}) == (
        ResizeJob(job_id="b", nodes=("n2",)),
        ResizeJob(job_id="a", nodes=("n1",)),
    )


def test_diff_when_a_job_is_on_its_way_to_another_size_then_it_is_told_once() -> None:
    assert resized({"a": at("n1")}, {"a": ("n1", "n2")}, {"a": 2}) == (ResizeJob(job_id="a", nodes=("n1", "n2")),)
    assert resized({"a": at("n1", "n2")}, {"a": ("n1",)}, {"a": 2}) == (ResizeJob(job_id="a", nodes=("n1",)),)


def test_diff_when_a_job_ends_or_halts_then_nobody_minds_its_size() -> None:
    assert resized({"a": at("n1")}, {}, {"a": 2}) == (HaltJob(job_id="a"),)
    assert resized({"a": at("n1")}, {"a": ("n1",)}, {"a": 2}, canceled="a") == (StopJob(job_id="a", reason="canceled"),)
    assert resized({}, {}, {"a": 2, "ended": 3}) == ()


# ---- circles


def test_diff_when_two_jobs_exchange_full_nodes_then_the_cheaper_one_is_halted() -> None:
    workers = {"a": at("n1", "n1"), "b": at("n2"), "c": at("n2")}
    plan: Placement = {"a": ("n2", "n2"), "b": ("n1",), "c": ("n1",)}
    assert actions(workers, plan) == (HaltJob(job_id="b"), HaltJob(job_id="c"))


def test_diff_when_a_circle_opens_by_itself_then_nobody_is_halted() -> None:
    workers = {"a": at("n1", "n1"), "b": at("n2", "n2"), "ended": at("n3", "n3")}
    assert actions(workers, {"a": ("n2", "n2"), "b": ("n3", "n3")}, nodes=3) == (
        StopJob(job_id="ended", reason="unknown"),
    )


def test_diff_when_foreign_pods_took_the_room_then_a_waiting_job_is_left_running() -> None:
    nodes = [a_node("n1", gpus=2), a_node("n2", gpus=2, foreign_gpus=2)]
    assert diff(wanted({"a": ("n2", "n2")}), seen({"a": at("n1", "n1")}, nodes)) == ()


# ---- liveness and safety, from anywhere to anywhere


def use_and_free(workers: Workers, action: Action) -> tuple[dict[int, str], dict[int, str]]:
    """Return the workers of the action's job while it is carried out that are new, and all those it leaves."""
    before = dict(workers.get(action.job_id, {}))
    match action:
        case StartJob():
            assert not before
            after = dict(enumerate(action.nodes))
        case ResizeJob():
            assert before
            after = places(action.nodes)
        case HaltJob() | StopJob():
            after = {}
        case _:
            assert_never(action)
    return {index: node for index, node in after.items() if before.get(index) != node}, after


def stepped(workers: Workers, todo: Sequence[Action], nodes: Sequence[Node]) -> Workers:
    """Carry out the actions; what they free is held until all are done, as a cluster may well do."""
    held: Counter[str] = Counter()
    for job_id, at_work in workers.items():
        for node in at_work.values():
            held[node] += GPUS[job_id]
    for action in todo:
        new, after = use_and_free(workers, action)
        for node in new.values():
            held[node] += GPUS[action.job_id]
        workers = {**workers, action.job_id: after}
    assert all(held[node.name] <= node.usable_gpus for node in nodes), "a GPU was promised twice"
    return {job_id: at_work for job_id, at_work in workers.items() if at_work}


@st.composite
def drawn_places(draw: st.DrawFn, nodes: Sequence[Node], *, least: int) -> Mapping[str, list[str]]:
    """Places for workers that fit the nodes, which get rather full."""
    free = {node.name: node.gpus for node in nodes}
    placed: dict[str, list[str]] = {}
    for job_id in draw(st.permutations(sorted(GPUS))):
        for _ in range(draw(st.integers(least, 4))):
            roomy = [name for name, gpus in free.items() if gpus >= GPUS[job_id]]
            if roomy:
                node = draw(st.sampled_from(roomy))
                free[node] -= GPUS[job_id]
                placed.setdefault(job_id, []).append(node)
    return placed


@st.composite
def a_gap(draw: st.DrawFn) -> tuple[Sequence[Node], Workers, Placement]:
    nodes = [a_node(f"n{index}", gpus=draw(st.integers(1, 4))) for index in range(draw(st.integers(1, 4)))]
    planned = {job_id: tuple(at) for job_id, at in draw(drawn_places(nodes, least=0)).items() if job_id != "ended"}
    observed: dict[str, dict[int, str]] = {}
    for job_id, there in draw(drawn_places(nodes, least=0)).items():
        indices = draw(st.lists(st.integers(0, 6), min_size=len(there), max_size=len(there), unique=True))
        observed[job_id] = dict(zip(indices if draw(st.booleans()) else range(len(there)), there, strict=True))
    return nodes, observed, planned


@settings(max_examples=300)
@given(gap=a_gap())
def test_diff_when_repeated_from_anywhere_then_the_plan_is_reached(
    gap: tuple[Sequence[Node], Workers, Placement],
) -> None:
    nodes, workers, placement = gap
    state = wanted(placement)
    for _ in range(3 * len(GPUS)):
        todo = diff(state, seen(workers, nodes))
        if not todo:
            break
        workers = stepped(workers, todo, nodes)
    assert workers == {job_id: dict(enumerate(there)) for job_id, there in placement.items()}


@given(gap=a_gap())
def test_diff_when_given_then_what_frees_gpus_comes_before_what_uses_them(
    gap: tuple[Sequence[Node], Workers, Placement],
) -> None:
    nodes, workers, placement = gap
    order = (HaltJob | StopJob, ResizeJob, StartJob, ResizeJob)
    rank = 0
    jobs = [action.job_id for action in diff(wanted(placement), seen(workers, nodes))]
    assert len(jobs) == len(set(jobs)), "a job has two actions"
    for action in diff(wanted(placement), seen(workers, nodes)):
        while rank < len(order) and not isinstance(action, order[rank]):
            rank += 1
        assert rank < len(order), f"{action} comes too late"


def test_diff_when_a_job_waits_for_its_next_try_starts_nothing_of_it() -> None:
    state = a_state(jobs=[a_job("a")], nodes=[a_node("n1")], placement={"a": ("n1",)})
    shown = Observed(nodes={"n1": a_node("n1")}, workers={}, gpus_per_replica={})
    assert diff(state, shown) == (StartJob(job_id="a", nodes=("n1",)),)
    assert diff(state, replace(shown, retries={"a": 1008.0})) == ()


# ---- parts of GPUs


def shares_of(**gpus: int) -> SharingNode:
    """Return the account of a node of two GPUs; job -> the GPU of which it has 600 milli."""
    pods = {
        job_id: PodShares(
            pod=job_id,
            containers={"share": ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=600))},
            assigned_at=0.0,
        )
        for job_id, gpu in gpus.items()
    }
    return SharingNode(devices=(GpuDevice(), GpuDevice()), pods=pods)


def test_share_starts_once_a_gpu_has_room_and_whole_workers_once_no_share_is_on_theirs() -> None:
    nodes = [a_node("n1", gpus=2)]
    share = a_job("s", share=GpuRequest(milli=400), gpus_per_replica=Gpus(0))
    state = a_state(jobs=[a_job("a"), share], placement={"s": ("n1",), "a": ("n1",)})

    def started(workers: Workers, account: SharingNode) -> set[str]:
        return {action.job_id for action in diff(state, replace(seen(workers, nodes), shares={"n1": account}))}

    assert started({}, shares_of()) == {"s", "a"}
    assert started({"d": at("n1")}, shares_of()) == {"d"}  # it is stopped first
    assert started({}, shares_of(x=0, y=1)) == {"s"}
    assert started({}, shares_of(x=0)) == {"s", "a"}


def test_share_whose_gpu_is_planned_comes_beside_those_of_its_gpu_alone_and_waits_for_their_room() -> None:
    shares = [a_job(name, share=GpuRequest(milli=400), gpus_per_replica=Gpus(0)) for name in ("s", "t", "u")]
    state = a_state(jobs=shares, placement=dict.fromkeys(("s", "t", "u"), ("n1",)))
    state = replace(state, plan=replace(state.plan, devices={"s": ((0,),), "t": ((0,),), "u": ((1,),)}))

    def started(account: SharingNode, gpus: int = 2) -> dict[str, tuple[str, ...] | None]:
        there = {name: at("n1") for name in account.pods.keys() & state.jobs.keys()}
        shown = replace(seen(there, [a_node("n1", gpus=gpus)]), shares={"n1": account})
        shown = replace(shown, gpus_per_replica=dict.fromkeys(there, Gpus(0)))
        return {action.job_id: action.beside for action in diff(state, shown) if isinstance(action, StartJob)}

    assert started(shares_of()) == {"s": ("t",), "t": ("s",)}  # u when it is seen on which GPU they are
    assert started(shares_of(t=0)) == {"s": ("t",), "u": ()}
    # The GPU of another has room, and is not theirs.
    assert started(shares_of(x=0), gpus=1) == {}
    # What leaves the GPU, and the plan has not any more, has to be gone.
    leaving = shares_of(t=0)
    leaving.pods["x"] = replace(
        leaving.pods["t"], containers={"share": ContainerGpus(gpus=(0,), request=GpuRequest(milli=1))}
    )
    assert started(leaving) == {"u": ()}
