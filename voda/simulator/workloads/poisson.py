"""Jobs drawn like those of Philly, arriving at random: no data set needed.

Source: the quantiles below were computed from the reduced Philly trace (Jeon et al., ATC'19); between them run times
are drawn evenly in their logarithm. Rule: job number i is the same for every rate and number of jobs.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from voda.domain.errors import InvalidInput
from voda.domain.node import Node
from voda.domain.rng import rng_at
from voda.simulator.workload import Arrival, Workload
from voda.simulator.workloads.request import WorkloadOptions, WorkloadRequest, parse_nodes, total_gpus
from voda.simulator.workloads.traces import SyntheticJobs, TracedJob, draw_scaling

GPU_MIX: Mapping[int, float] = {1: 76_627, 2: 1_818, 4: 1_870, 8: 1_650, 16: 206, 32: 67, 64: 6, 128: 3}
"""Requested GPUs -> jobs of the trace; its few 12s and 24s count as 8 and 16."""
_AT = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
DURATIONS_S: Mapping[int, Sequence[float]] = {
    1: (1, 52, 122, 1_117, 2_716, 8_512, 19_137, 68_252, 135_399, 266_914, 865_709, 3_256_045),
    2: (2, 9, 16, 21, 76, 72_740, 197_062, 343_862, 523_316, 808_064, 1_474_215, 2_582_803),
    4: (3, 75, 773, 17_410, 89_394, 184_435, 273_968, 533_378, 907_376, 1_205_990, 2_446_301, 2_750_674),
    8: (1, 125, 1_737, 23_622, 172_980, 350_486, 525_573, 793_178, 1_059_432, 1_998_735, 2_656_454, 4_628_226),
    16: (1, 35, 610, 28_466, 109_991, 251_987, 445_765, 615_236, 940_905, 1_281_793, 1_614_887, 1_710_643),
}
"""Requested GPUs, up to the next size -> run time in seconds at the quantiles `_AT`."""
DEFAULT_NODES = "16x4"
DEFAULT_JOBS = 200
MOST_JOBS = 1_000_000


def load(variant: str, request: WorkloadRequest) -> Workload:
    """Return jobs drawn by the seed; see the catalogue."""
    count = request.options.jobs or DEFAULT_JOBS
    if not 1 <= count <= MOST_JOBS:
        raise InvalidInput(f"poisson: {count} jobs requested, expected 1 to {MOST_JOBS}")
    nodes = request.nodes or parse_nodes(DEFAULT_NODES)
    return Workload(
        name="poisson",
        source="drawn by the quantiles of the Philly trace (Jeon et al., ATC'19)",
        arrivals=tuple(itertools.islice(_arrivals(request, nodes), count)),
        nodes=nodes,
    )


def mean_gpu_s() -> float:
    """Return the expected GPU-seconds of one job."""
    return sum(weight * gpus * _mean(_durations(gpus)) for gpus, weight in GPU_MIX.items()) / sum(GPU_MIX.values())


def _draw_duration_s(rng: random.Random, gpus: int) -> float:
    at, quantiles = rng.random(), _durations(gpus)
    i = next(i for i, upper in enumerate(_AT[1:]) if at < upper)
    share = (at - _AT[i]) / (_AT[i + 1] - _AT[i])
    return float(quantiles[i] * (quantiles[i + 1] / quantiles[i]) ** share)


def _arrivals(request: WorkloadRequest, nodes: tuple[Node, ...]) -> Iterator[Arrival]:
    rate_per_s = _rate_per_s(request.options, total_gpus(nodes))
    gaps, jobs, synthetic = rng_at(request.seed, "gaps"), rng_at(request.seed, "jobs"), SyntheticJobs(nodes)
    submitted_s = 0.0
    for number in itertools.count(1):
        gpus = jobs.choices(list(GPU_MIX), list(GPU_MIX.values()))[0]
        job = TracedJob(
            job_id=f"poisson-{number:05}",
            submitted_s=round(submitted_s, 3),
            duration_s=_draw_duration_s(jobs, gpus),
            gpus=gpus,
        )
        yield synthetic.arrival(job, draw_scaling(jobs, gpus))
        submitted_s += gaps.expovariate(rate_per_s)


def _rate_per_s(options: WorkloadOptions, gpus: int) -> float:
    for name in ("rate_per_h", "load"):
        value: float = getattr(options, name)
        if not 0.0 <= value < math.inf:
            raise InvalidInput(f"poisson: {name} is {value}, expected a number above 0")
    rate_per_s = options.rate_per_h / 3600.0 or options.load * gpus / mean_gpu_s()
    if not rate_per_s:
        raise InvalidInput("poisson: load and rate_per_h are both 0, so that no job would ever arrive")
    return rate_per_s


def _durations(gpus: int) -> Sequence[float]:
    return DURATIONS_S[max(size for size in DURATIONS_S if size <= gpus)]


def _mean(quantiles: Sequence[float]) -> float:
    """Integrate the quantile function: between two quantiles x < y it averages to (y - x) / ln(y / x)."""
    steps = zip(itertools.pairwise(_AT), itertools.pairwise(quantiles), strict=True)
    return sum((upper - lower) * (y - x) / math.log(y / x) for (lower, upper), (x, y) in steps)
