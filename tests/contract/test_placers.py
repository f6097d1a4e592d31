"""What every placer keeps, whatever it is given; placers are found by file, so a new one is held to it too."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_job, a_node, a_state
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Placement
from voda.domain.sizes import JobSizes
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.placement import PLACERS

MAX_REPLICAS = 6
Request = tuple[ClusterState, Mapping[str, int]]


@st.composite
def a_cluster_node(draw: st.DrawFn, name: str) -> Node:
    gpus = draw(st.integers(1, 8))
    return a_node(
        name,
        gpus=gpus,
        foreign_gpus=draw(st.sampled_from([0, 0, 0, 1, gpus])),
        is_ready=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def a_live_job(
    draw: st.DrawFn,
    job_id: str,
    sizes: st.SearchStrategy[int],
    kinds: st.SearchStrategy[str],
    refusing: tuple[str, ...],
) -> Job:
    least = draw(st.integers(1, 3))
    gaps = JobSizes.of([least, *(size for size in range(least + 1, MAX_REPLICAS) if draw(st.booleans())), MAX_REPLICAS])
    return a_job(
        job_id,
        min_replicas=least,
        max_replicas=MAX_REPLICAS,
        sizes=draw(st.sampled_from([None, gaps])),
        gpus_per_replica=draw(sizes),
        submitted_at=float(draw(st.integers(0, 3))),
        workers=draw(st.sampled_from([{}, {0: "n0"}])),
        kind=draw(kinds),
        refusals=(refusals := dict.fromkeys(draw(st.sets(st.sampled_from(refusing))), "full") if refusing else {}),
        fits={node: draw(st.integers(0, 4)) for node in sorted(refusals) if draw(st.booleans())},
    )


@st.composite
def an_estimate(draw: st.DrawFn) -> Estimate:
    return Estimate(
        speedup=linear_speedup(MAX_REPLICAS),
        remaining_s=draw(st.sampled_from([100.0, 10_000.0, float("inf")])),
        resize_cost_s=60.0,
        span_penalty=draw(st.sampled_from([0.0, 0.1])),
    )


@st.composite
def a_request(
    draw: st.DrawFn,
    *,
    sizes: st.SearchStrategy[int],
    kinds: st.SearchStrategy[str] = st.just("MPIJob"),  # noqa: B008 - strategies are values
    refusals: bool = False,
) -> Request:
    """A cluster, a placement in force that names lost nodes, full nodes and ended jobs, and an allocation."""
    names = [f"n{index}" for index in range(draw(st.integers(0, 6)))]
    nodes = [draw(a_cluster_node(name)) for name in names]
    job_ids = [f"j{index}" for index in range(draw(st.integers(0, 8)))]
    refusing = (*names, "lost") if refusals else ()
    jobs = [draw(a_live_job(job_id, sizes, kinds, refusing)) for job_id in job_ids]
    somewhere = st.lists(st.sampled_from([*names, "lost"]), min_size=1, max_size=MAX_REPLICAS).map(tuple)
    placement = draw(st.dictionaries(st.sampled_from([*job_ids, "ended"]), somewhere))
    estimates = {job_id: draw(an_estimate()) for job_id in job_ids if draw(st.booleans())}
    state = a_state(jobs=jobs, nodes=nodes, placement=placement, estimates=estimates)
    return state, draw(an_allocation(state))


@st.composite
def an_allocation(draw: st.DrawFn, state: ClusterState) -> Mapping[str, int]:
    """Counts as a policy may give them: 0 or within the bounds, and no more than there is in all."""
    left = state.capacity_gpus
    replicas: dict[str, int] = {}
    for job_id, job in state.jobs.items():
        spec = job.spec
        count = spec.size_within(draw(st.integers(0, spec.max_replicas)))
        replicas[job_id] = count if count * spec.gpus_per_replica <= left else 0
        left -= replicas[job_id] * spec.gpus_per_replica
    return replicas


SINGLE = a_request(sizes=st.just(1))
MIXED = a_request(sizes=st.sampled_from([1, 1, 2, 4]))
ANCHORED = a_request(sizes=st.sampled_from([1, 1, 2, 4]), kinds=st.sampled_from(["MPIJob", "PyTorchJob"]))
REFUSED = a_request(sizes=st.sampled_from([1, 1, 2, 4]), kinds=st.sampled_from(["MPIJob", "PyTorchJob"]), refusals=True)
ANY = st.one_of(MIXED, ANCHORED, REFUSED)


def in_force(state: ClusterState, placement: Placement) -> ClusterState:
    return a_state(jobs=state.jobs.values(), nodes=state.nodes.values(), placement=placement, estimates=state.estimates)


def free_after(state: ClusterState, placement: Placement) -> Mapping[str, int]:
    used: Counter[str] = Counter()
    for job_id, nodes in placement.items():
        for node in nodes:
            used[node] += state.jobs[job_id].spec.gpus_per_replica
    assert set(used) <= set(state.nodes)
    return {name: node.usable_gpus - used[name] for name, node in state.nodes.items()}


def fits_whole_on_one(state: ClusterState, placement: Placement, job_id: str) -> bool:
    nodes, gpus = placement[job_id], state.jobs[job_id].spec.gpus_per_replica
    free = free_after(state, placement)
    return any(free[name] + nodes.count(name) * gpus >= len(nodes) * gpus for name in state.nodes)


@given(request=ANY)
def test_placers_when_given_anything_then_no_node_holds_more_than_it_has(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        free = free_after(state, placer.place(state, replicas, 0.0))
        assert min(free.values(), default=0) >= 0


@given(request=REFUSED)
def test_placers_when_nodes_refuse_jobs_then_no_worker_comes_to_them(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        for job_id, nodes in placer.place(state, replicas, 0.0).items():
            job, before = state.jobs[job_id], state.plan.placement.get(job_id, ())
            at_work = Counter(
                before[index] for index, node in job.workers.items() if before[index : index + 1] == (node,)
            )
            for index, node in enumerate(nodes):
                stays = job.workers.get(index) == node and index < len(before) and before[index] == node
                assert not job.is_refused_by(node, nodes.count(node)) or stays or nodes.count(node) <= at_work[node]


@given(request=ANCHORED)
def test_steady_when_a_pytorchjob_spans_or_grows_then_worker_0_stays_if_its_node_keeps_all(request: Request) -> None:
    state, replicas = request
    kept: Counter[str] = Counter()
    for job_id, size in replicas.items():
        for node in state.plan.placement.get(job_id, ())[:size]:
            kept[node] += state.jobs[job_id].spec.gpus_per_replica
    for job_id, nodes in PLACERS["steady"].place(state, replicas, 0.0).items():
        job, before = state.jobs[job_id], state.plan.placement.get(job_id, ("",))[0]
        fits = before in state.nodes and state.nodes[before].usable_gpus >= kept[before]
        if job.spec.kind == "PyTorchJob" and job.workers.get(0) == before and fits:
            assert nodes[0] == before


@given(request=SINGLE)
def test_placers_when_workers_need_one_gpu_then_counts_are_exact(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        placement = placer.place(state, replicas, 0.0)
        assert {job_id: len(nodes) for job_id, nodes in placement.items()} == {j: n for j, n in replicas.items() if n}


@given(request=ANY)
def test_placers_when_a_job_does_not_fit_whole_then_it_gets_a_size_at_which_it_runs_or_nothing(
    request: Request,
) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        for job_id, nodes in placer.place(state, replicas, 0.0).items():
            assert 0 < state.jobs[job_id].spec.size_within(len(nodes)) == len(nodes) <= replicas[job_id]


@given(request=ANY, data=st.data())
def test_placers_when_mappings_are_reordered_then_the_answer_is_the_same(request: Request, data: st.DataObject) -> None:
    state, replicas = request
    reordered = a_state(
        jobs=data.draw(st.permutations(list(state.jobs.values()))),
        nodes=data.draw(st.permutations(list(state.nodes.values()))),
        placement=dict(data.draw(st.permutations(list(state.plan.placement.items())))),
        estimates=state.estimates,
    )
    turned = dict(data.draw(st.permutations(list(replicas.items()))))
    for placer in PLACERS.values():
        assert placer.place(reordered, turned, 0.0) == placer.place(state, replicas, 0.0)


@given(request=ANY)
def test_placers_when_placing_then_the_input_is_left_alone(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        before = (dict(replicas), dict(state.plan.placement), dict(state.nodes))
        placer.place(state, replicas, 0.0)
        assert before == (replicas, state.plan.placement, state.nodes)


@given(request=ANY)
def test_placers_when_the_answer_is_in_force_then_nothing_moves(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        placement = placer.place(state, replicas, 0.0)
        assert placer.place(in_force(state, placement), replicas, 0.0) == placement


@given(request=MIXED)
def test_placers_when_a_job_begins_to_span_then_no_node_has_room_for_it(request: Request) -> None:
    state, replicas = request
    for placer in PLACERS.values():
        placement = placer.place(state, replicas, 0.0)
        for job_id, nodes in placement.items():
            spanned_before = len(set(state.plan.placement.get(job_id, ()))) > 1
            if len(set(nodes)) > 1 and not spanned_before:
                assert not fits_whole_on_one(state, placement, job_id)
