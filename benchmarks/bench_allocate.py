"""One decision of each policy, reasons included: 1,000 jobs, 4,000 GPUs, min = 1, max = 8 to 16."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.table import Row
from voda.domain.gpus import Gpus
from voda.domain.job import Job, JobSpec
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.rng import rng_at
from voda.domain.settings import Settings
from voda.domain.state import Belief, ClusterState, Estimate
from voda.policies import POLICIES

TITLE = "allocate: 1,000 jobs, 4,000 GPUs, min = 1, one core"
_RUNS = 9
_JOBS = 1_000
_GPUS_PER_NODE = Gpus(8)
_NODES = 500
_GO_MS: Final = {
    "fifo": 1.0,
    "elastic-fifo": 1.0,
    "srjf": 1.0,
    "elastic-srjf": 1.0,
    "tiresias": 1.0,
    "elastic-tiresias": 600.0,
    "ffdl": 900.0,
    "afs-l": 1300.0,
}
"""What the ancestor's Go needs on one core of a test machine (heyfey/vodascheduler, at its best)."""
_GOALS_MS: Final = {"elastic-tiresias": 60.0, "ffdl": 90.0, "afs-l": 130.0, "elastic-value": 10.0}
_FIFO_LIKE_MS: Final = 5.0


def run() -> Sequence[Row]:
    """Return the milliseconds of one decision, policy by policy, and FfDL's where no gain may be trusted to fall."""
    smooth, bent = _view(noise=0.0), _view(noise=0.1)
    rows = [_row(name, name, _GOALS_MS.get(name, _FIFO_LIKE_MS), _allocate_ms(name, smooth)) for name in POLICIES]
    return [*rows, _row("ffdl", "ffdl, noisy speedups", 90.0, _allocate_ms("ffdl", bent))]


def _row(name: str, what: str, goal_ms: float, took_ms: float) -> Row:
    go_ms = _GO_MS.get(name)
    return Row(
        what=what,
        figure=took_ms,
        unit="ms",
        goal=goal_ms,
        yardstick="" if go_ms is None else f"Go, {go_ms:,.0f} ms",
        ratio=None if go_ms is None else took_ms / go_ms,
    )


def _allocate_ms(name: str, view: ClusterState) -> float:
    policy = POLICIES[name]
    took_s = []
    for _ in range(_RUNS):
        begun = perf_counter()
        policy.allocate(view, 0.0)
        took_s.append(perf_counter() - begun)
    return median(took_s) * 1e3


def _view(*, noise: float) -> ClusterState:
    """Return jobs that scale by Amdahl's law, measured with a relative error of up to `noise`."""
    rng = rng_at(1, "bench_allocate")
    jobs, estimates = {}, {}
    for number in range(_JOBS):
        job_id = f"job-{number:04}"
        most, serial = rng.randint(8, 16), rng.uniform(0.01, 0.3)
        spec = JobSpec(job_id=job_id, max_replicas=most)
        jobs[job_id] = Job(spec=spec, submitted_at=float(number), counted_at=0.0, queue_level=rng.randint(0, 1))
        speedup = [n / (1 + serial * (n - 1)) * rng.uniform(1 - noise, 1 + noise) for n in range(2, most + 1)]
        estimates[job_id] = Estimate(
            speedup=(0.0, 1.0, *speedup), remaining_s=rng.uniform(100.0, 1e5), speedup_belief=Belief("measured")
        )
    nodes = {name: Node(name=name, gpus=_GPUS_PER_NODE) for name in (f"node-{number:03}" for number in range(_NODES))}
    return ClusterState(
        pool="default",
        position=1,
        jobs=jobs,
        nodes=nodes,
        plan=Plan(pool="default"),
        estimates=estimates,
        settings=Settings(),
    )
