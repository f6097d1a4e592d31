"""What is kept of the room that a plan leaves changes no placement, and is what a look at all jobs finds."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.gpus import Gpus
from voda.domain.groups import PlannedRoom
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.placement.partial_placement import carry_over
from voda.placement.steady import Steady
from voda.projections.cluster.live_jobs import LiveJobs

_NODES = [f"n{n}" for n in range(5)]


def a_drawn_job(random: Random, job_id: str) -> Job:
    gpus = random.choice((1, 1, 2))
    refusals = {random.choice(_NODES): "no"} if random.random() < 0.2 else {}
    workers = {0: random.choice(_NODES)} if random.random() < 0.5 else {}
    return a_job(
        job_id,
        max_replicas=3,
        gpus_per_replica=gpus,
        refusals=refusals,
        workers=workers,
        submitted_at=float(random.randrange(3)),
        is_canceling=random.random() < 0.1,
    )


def drawn_places(random: Random) -> tuple[str, ...]:
    return tuple(random.choice(_NODES) for _ in range(random.randrange(1, 4)))


def a_drawn_view(random: Random) -> ClusterState:
    jobs = [a_drawn_job(random, f"j{n}") for n in range(7)]
    placement = {f"j{n}": drawn_places(random) for n in range(8) if random.random() < 0.7}
    nodes = [a_node(name, is_ready=random.random() < 0.9) for name in _NODES if random.random() < 0.9]
    return a_state(jobs=jobs, nodes=nodes, placement=placement)


def held(free: Mapping[str, Gpus]) -> Mapping[str, Gpus]:
    return {name: gpus for name, gpus in free.items() if gpus}


@given(st.integers())
def test_what_is_carried_over_is_the_same_with_the_room_known(seed: int) -> None:
    random = Random(seed)
    view = a_drawn_view(random)
    known = replace(view, room=PlannedRoom.of(view.jobs, view.nodes, view.plan.placement))
    replicas = {job_id: random.randrange(4) for job_id, job in view.jobs.items() if not job.is_canceling}
    one, other = carry_over(view, replicas), carry_over(known, replicas)
    assert held(one.free) == held(other.free)
    assert (one.whole, one.short) == (other.whole, other.short)
    assert {*one.spanning} == {*other.spanning}
    assert Steady().place(known, replicas, 0.0) == Steady().place(view, replicas, 0.0)


@given(st.integers())
def test_room_that_follows_is_the_one_made_anew(seed: int) -> None:
    random = Random(seed)
    view = a_drawn_view(random)
    jobs, placement, nodes = LiveJobs(view.jobs), dict(view.plan.placement), dict(view.nodes)
    for _ in range(20):
        job_id = f"j{random.randrange(9)}"
        match random.randrange(5):
            case 0:
                jobs[job_id] = a_drawn_job(random, job_id)
            case 1 if job_id in jobs:
                del jobs[job_id]
            case 2:
                placement = {**placement, job_id: drawn_places(random)}
                jobs.replanned([job_id])
            case 3:
                placement = {other: at for other, at in placement.items() if other != job_id}
                jobs.replanned([job_id])
            case _:
                name = random.choice(_NODES)
                nodes = {other: node for other, node in nodes.items() if other != name or random.random() < 0.5}
        if random.random() < 0.5:
            known = jobs.node_groups(nodes)
            room = jobs.room(jobs.groups().jobs, known.nodes, placement)
            anew = PlannedRoom.of(dict(jobs), nodes, placement)
            assert (held(room.free), {*room.spanning}) == (held(anew.free), {*anew.spanning})
            assert known.capacity_gpus == sum(node.usable_gpus for node in nodes.values())


@given(st.integers())
def test_view_with_other_jobs_has_their_room(seed: int) -> None:
    random = Random(seed)
    view = a_drawn_view(random)
    known = replace(view, room=PlannedRoom.of(view.jobs, view.nodes, view.plan.placement))
    changed = known.with_jobs({"j1": a_drawn_job(random, "j1")}, gone={"j2"})
    room = changed.planned_room
    assert room is not None
    anew = PlannedRoom.of(changed.jobs, view.nodes, view.plan.placement)
    assert (held(room.free), {*room.spanning}) == (held(anew.free), {*anew.spanning})
    assert replace(changed, nodes={}).planned_room is None
