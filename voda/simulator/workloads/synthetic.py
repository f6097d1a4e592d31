"""Jobs with a given size and run time: their bounds, and a random speedup.

Rule: the run's generator draws from the ranges below, which docs/workloads.md describes.
"""

import random

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, speedup_law
from voda.simulator.workloads.request import total_gpus

EFFICIENCY = (0.6, 0.95)
"""T(n)/n at the requested size (at 2, where 1 was requested)."""
SPAN_PENALTY = (0.0, 0.3)
RESTART = Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0)
EPOCH_S = 600.0
"""Of run time at the requested size; short and long jobs have shorter and longer epochs."""
MOST_EPOCHS = 10


class TracedJob(Struct, frozen=True, kw_only=True):
    """A job of a trace."""

    job_id: str
    virtual_cluster: str = ""
    """Of the trace; a part of the job's category."""
    submitted_s: float
    duration_s: float
    """On the requested GPUs."""
    gpus: int


class SpeedupParameters(Struct, frozen=True):
    """How a job scales: a and b of `speedup_law`, and the penalty for spanning nodes."""

    a: float
    b: float
    span_penalty: float


def draw_scaling(rng: random.Random, gpus: int) -> SpeedupParameters:
    """Draw how a job scales that requests so many GPUs.

    A job loses between 5 % and 40 % at its requested size; the loss is split at random between the serial share and the
    communication.
    """
    size = max(2, gpus)
    lost = 1.0 / rng.uniform(*EFFICIENCY) - 1.0
    serial = rng.random()
    a, b = serial * lost / (size - 1), (1.0 - serial) * lost / (size * (size - 1))
    return SpeedupParameters(a, b, rng.uniform(*SPAN_PENALTY))


class SyntheticJobs(Struct, frozen=True):
    """Turns traced jobs into arrivals at one cluster."""

    cluster_gpus: int
    node_gpus: int
    """Of the largest node."""

    def arrival(self, job: TracedJob, scaling: SpeedupParameters) -> Arrival:
        """Return the job, elastic from 1 replica to twice its request, or to the whole cluster if that is less."""
        profile = self._profile(job, scaling)
        spec = JobSpec(
            job_id=job.job_id,
            category=f"{job.virtual_cluster or 'any'}-{job.gpus}gpu",
            requested_replicas=min(job.gpus, self.cluster_gpus),
            max_replicas=len(profile.speedup) - 1,
            epochs=profile.epochs,
        )
        return Arrival(spec=spec, submitted_s=job.submitted_s, profile=profile)

    def _profile(self, job: TracedJob, scaling: SpeedupParameters) -> SpeedupProfile:
        speedup = speedup_law(scaling.a, scaling.b, 2 * job.gpus)
        # A job larger than a node spanned nodes when its run time was measured.
        penalty = 1.0 + scaling.span_penalty if job.gpus > self.node_gpus else 1.0
        return SpeedupProfile(
            epochs=min(MOST_EPOCHS, 1 + int(job.duration_s / EPOCH_S)),
            work_s=job.duration_s * speedup[job.gpus] / penalty,
            speedup=speedup[: self.cluster_gpus + 1],
            span_penalty=scaling.span_penalty,
            costs=RESTART,
        )


def synthetic_jobs(nodes: tuple[Node, ...]) -> SyntheticJobs:
    """Return the converter for a cluster of these nodes."""
    return SyntheticJobs(total_gpus(nodes), max(node.gpus for node in nodes))
