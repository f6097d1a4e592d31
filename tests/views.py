"""Views for policies, from a few small numbers each: drawn by hypothesis, which shrinks them, or by a seed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.job import Job, JobSpec
from voda.domain.rng import rng_at
from voda.domain.settings import Settings
from voda.domain.sizes import JobSizes
from voda.domain.state import Belief, ClusterState, Estimate

CURVES = ("missing", "short", "linear", "amdahl", "retrograde", "bent")
GPUS_PER_REPLICA = (1, 1, 1, 2, 3, 8)
REMAINING_S = (math.inf, 0.0, 1.0, 1.0, 50.0, 1e6)


class Draw(NamedTuple):
    """One job, in numbers that are read modulo what they choose from."""

    submitted: int
    least: int
    room: int
    requested: int
    gpus: int
    curve: int
    left: int
    level: int
    started: int
    had: int
    shape: int


def a_view(draws: Sequence[Draw], *, gpus: int, pending: int = 10, equal_gpus: bool = False) -> ClusterState:
    """Return a view of these jobs; every eleventh is being canceled."""
    jobs = [_job(number, draw, equal_gpus) for number, draw in enumerate(draws)]
    estimates = {
        job.spec.job_id: estimate
        for job, draw in zip(jobs, draws, strict=True)
        if (estimate := _estimate(job, draw)) is not None
    }
    placement = {job.spec.job_id: ("n1",) * had for job, draw in zip(jobs, draws, strict=True) if (had := draw.had % 4)}
    return a_state(
        jobs=jobs,
        nodes=[a_node("n1", gpus=gpus), a_node("n2", gpus=8, is_ready=False)],
        placement=placement,
        estimates=estimates,
        settings=Settings(parameters={"elastic-tiresias": {"compact_pending": pending}}),
    )


def views() -> st.SearchStrategy[ClusterState]:
    """Return small views of all sorts, also absurd ones: no jobs, no GPUs, jobs larger than the cluster."""
    small = st.integers(0, 11)
    draws = st.lists(st.builds(Draw, *[small] * len(Draw._fields)), max_size=7)
    return st.builds(a_view, draws, gpus=st.integers(0, 40), pending=st.integers(0, 4))


def drawn_view(seed: int, *, most_jobs: int = 8, equal_gpus: bool = False) -> ClusterState:
    """Return the small view of a seed."""
    rng = rng_at(seed, "views")
    draws = [Draw(*(rng.randrange(1000) for _ in Draw._fields)) for _ in range(rng.randint(0, most_jobs))]
    return a_view(draws, gpus=rng.randint(0, 30), pending=rng.randint(0, 3), equal_gpus=equal_gpus)


def a_large_view(jobs: int, *, gpus: int, curve: str = "amdahl") -> ClusterState:
    """Return a view of many jobs, each of which wants 1 to 8..16 GPUs and scales by the given curve."""
    rng = rng_at(jobs, curve)
    draws = [
        Draw(number, 0, rng.randint(7, 15), 0, 0, CURVES.index(curve), rng.randrange(6), rng.randrange(2), 0, 0, number)
        for number in range(jobs)
    ]
    return a_view(draws, gpus=gpus)


def _job(number: int, draw: Draw, equal_gpus: bool) -> Job:
    least = 1 + draw.least % 4
    most = least + draw.room % 16
    return a_job(
        f"j{number}",
        submitted_at=float(draw.submitted % 1000),
        min_replicas=least,
        max_replicas=most,
        requested_replicas=least + draw.requested % (1 + most - least),
        gpus_per_replica=1 if equal_gpus else GPUS_PER_REPLICA[draw.gpus % 6],
        queue_level=draw.level % 2,
        first_started_at=None if draw.started % 3 == 0 else float(draw.started % 3),
        is_canceling=draw.shape % 11 == 10,
    )


def _estimate(job: Job, draw: Draw) -> Estimate | None:
    curve = CURVES[draw.curve % len(CURVES)]
    if curve == "missing":
        return None
    most = 1 if curve == "short" else job.spec.max_replicas
    a = {"linear": 0.0, "amdahl": 0.01 + 0.03 * (draw.shape % 10), "retrograde": 0.1}.get(curve, 0.0)
    b = 0.02 if curve == "retrograde" else 0.0
    speedup = [n / (1 + a * (n - 1) + b * n * (n - 1)) for n in range(1, most + 1)]
    if curve == "bent":
        rng = rng_at(draw.shape, "bent")
        speedup = [1.0]
        while len(speedup) < most:
            speedup.append(max(0.001, speedup[-1] + rng.choice((1.0, 0.5, 0.5, 1.5, 0.0, -0.25, rng.random()))))
    left_s = REMAINING_S[draw.left % 6]
    return Estimate(speedup=(0.0, *speedup), remaining_s=left_s, speedup_belief=Belief("measured"))


def sized_views() -> st.SearchStrategy[ClusterState]:
    """Return small views of jobs of which most run at some sizes only."""
    return st.builds(with_sizes, views(), st.lists(st.integers(0, 5), min_size=7, max_size=7))


def with_sizes(view: ClusterState, choices: Sequence[int]) -> ClusterState:
    """Return the view in which jobs, in the order of their names, run at every size, or at some of them."""
    named = zip(sorted(view.jobs), choices, strict=False)
    sized = {job_id: _sized(view.jobs[job_id], choice) for job_id, choice in named}
    return replace(view, jobs={job_id: sized.get(job_id, job) for job_id, job in view.jobs.items()})


def _sized(job: Job, choice: int) -> Job:
    spec = job.spec
    every = range(spec.min_replicas, spec.max_replicas + 1)
    doubling = [size for size in every if size in [spec.min_replicas << n for n in range(6)]]
    sizes = [None, doubling, doubling, every[::2], every[::3], [every[0], every[-1]]][choice]
    if sizes is None or len({*sizes}) < len(sizes):
        return job
    return replace(job, spec=at_sizes(spec, JobSizes.of(sizes)))


def at_sizes(spec: JobSpec, sizes: JobSizes) -> JobSpec:
    """Return a spec that runs at these sizes alone; what it requests becomes one of them."""
    least, most = sizes.above(0), sizes.floor(1 << 20)
    requested = max(least, sizes.floor(spec.requested))
    return replace(spec, sizes=sizes, min_replicas=least, max_replicas=most, requested_replicas=requested)


def with_priorities(view: ClusterState, priorities: Sequence[int]) -> ClusterState:
    """Return the view with a priority for each job, in the order of their names."""
    jobs = {
        job_id: replace(view.jobs[job_id], spec=replace(view.jobs[job_id].spec, priority=priority))
        for job_id, priority in zip(sorted(view.jobs), priorities, strict=False)
    }
    return replace(view, jobs={job_id: jobs.get(job_id, job) for job_id, job in view.jobs.items()})
