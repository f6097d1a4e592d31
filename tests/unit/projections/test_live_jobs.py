"""What is kept beside live jobs is what the jobs themselves say, whatever changes, and costs what changed."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.groups import JobGroups
from voda.domain.job import Job, VainDisplacement
from voda.domain.reasons.nodes import Said
from voda.projections.cluster.displacements import let_displace_again
from voda.projections.cluster.live_jobs import LiveJobs


def a_drawn_job(random: Random, job_id: str) -> Job:
    vain = VainDisplacement(node="n1", why=Said(text="no"), openings=0, least=1, refused={"n1": a_node("n1")})
    return a_job(
        job_id,
        min_replicas=random.randrange(1, 3),
        max_replicas=4,
        gpus_per_replica=random.choice((0, 1, 1, 1, 2)),
        priority=random.choice((0, 0, 0, 7)),
        is_restartable=random.random() < 0.9,
        is_canceling=random.random() < 0.1,
        retry_at=random.choice((0.0, 0.0, 0.0, 5.0)),
        displaced_in_vain=vain if random.random() < 0.2 else None,
    )


def change(random: Random, jobs: LiveJobs) -> None:
    job_id = f"j{random.randrange(8)}"
    if job_id in jobs and random.random() < 0.3:
        del jobs[job_id]
    else:
        jobs[job_id] = a_drawn_job(random, job_id)


@given(st.integers())
def test_groups_are_those_made_anew_and_later_changes_leave_them_as_they_were(seed: int) -> None:
    random, jobs = Random(seed), LiveJobs({f"other-{n}": a_job(f"other-{n}") for n in range(20)})
    seen: list[tuple[JobGroups, JobGroups]] = []
    for _ in range(12):
        for _ in range(random.randrange(4)):
            change(random, jobs)
        index = jobs.groups()
        seen.append((index, JobGroups.of(dict(jobs))))
        assert index.jobs == jobs
        assert jobs.in_vain == {job_id for job_id, job in jobs.items() if job.displaced_in_vain}
    assert all(index == anew for index, anew in seen)


@given(st.integers())
def test_view_with_other_jobs_has_their_groups(seed: int) -> None:
    random = Random(seed)
    view = a_state(jobs=[a_drawn_job(random, f"j{n}") for n in range(9)], nodes=[a_node("n1")])
    others = {name: a_drawn_job(random, name) for name in (f"j{random.randrange(12)}" for _ in range(3))}
    changed = view.with_jobs(others, gone={"j0", "j5"} - others.keys())
    assert changed.job_groups == JobGroups.of(changed.jobs)
    assert replace(changed, jobs=view.jobs).special_jobs == view.special_jobs
    assert changed.priorities == replace(changed, groups=None).priorities


def test_jobs_that_did_not_change_are_not_looked_at_again() -> None:
    jobs = LiveJobs({f"j{n}": a_job(f"j{n}") for n in range(9)})
    first = jobs.groups()
    assert jobs.groups() is first
    jobs["j3"] = replace(jobs["j3"], is_canceling=True)
    assert first.special == {}
    assert jobs.groups().special == {"j3": jobs["j3"]}


def test_job_that_is_no_longer_in_vain_is_found_no_more() -> None:
    vain = VainDisplacement(node="n1", why=Said(text="no"), openings=0, least=1, refused={"n1": a_node("n1", gpus=1)})
    jobs = LiveJobs({"a": a_job("a", displaced_in_vain=vain), "b": a_job("b")})
    let_displace_again(jobs, a_node("n1", gpus=1))
    assert jobs.in_vain == {"a"}
    let_displace_again(jobs, a_node("n1", gpus=2))
    assert (jobs.in_vain, jobs["a"].displaced_in_vain) == (set(), None)
