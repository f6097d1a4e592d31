"""Elastic-Tiresias: Tiresias' queues; under pressure the lower one shrinks to its minimum; gains take the rest.

Wu et al., TPDS 2021: compaction and expansion by efficiency gain, gain(n) = T(n + 1) - T(n), and T(min) / min
for a job that has nothing. Sizes are replicas; a job's GPUs per replica only count when it is charged.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from voda.domain.job import Job, JobSpec
from voda.domain.plan import Allocation
from voda.domain.reasons.policies import Compacted, Gain, PolicyCause
from voda.domain.state import ClusterState
from voda.policies.toolkit import levels
from voda.policies.toolkit.allocation import Shares, explained, give_first, grow_by_gain, requested
from voda.policies.toolkit.estimates import speedup
from voda.policies.toolkit.order import by_first_start, by_queue, by_submission
from voda.policies.toolkit.parameters import parameters


class ElasticTiresiasParameters(levels.QueueThresholds, frozen=True, kw_only=True):
    compact_pending: Annotated[
        int,
        Meta(
            ge=0, le=1_000_000, description="With more pending jobs than this, the lower queue shrinks to its minimum."
        ),
    ] = 10


class ElasticTiresias(levels.TwoQueues):
    name: ClassVar[str] = "elastic-tiresias"
    title: ClassVar[str] = "Tiresias that shrinks the lower queue and grows by gain"
    paper: ClassVar[str] = "Wu et al., Elastic Deep Learning in Multi-Tenant GPU Clusters, TPDS 2021"
    parameters: ClassVar[type[ElasticTiresiasParameters]] = ElasticTiresiasParameters

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        submitted = by_submission(view)
        shares = give_first(by_queue(by_first_start(submitted)), view.capacity_gpus, requested)
        pending = sum(count == 0 for count in shares.replicas.values())
        is_crowded = pending > parameters(view, self.name, ElasticTiresiasParameters).compact_pending
        if is_crowded:
            _compact(submitted, shares)
        low = {job.spec.job_id for job in submitted if job.queue_level != levels.HIGH}
        gains = grow_by_gain(by_queue(submitted), shares, lambda job: speedup(view, job))

        def why(spec: JobSpec) -> PolicyCause | None:
            if spec.job_id in gains:
                return Gain(per_gpu=round(gains[spec.job_id] / spec.gpus_per_replica, 2))
            return Compacted(pending=pending) if is_crowded and spec.job_id in low else None

        return explained(view, shares, why=why)


def _compact(jobs: Iterable[Job], shares: Shares) -> None:
    """Shrink every running job of the lower queue to its minimum."""
    for job in jobs:
        spec = job.spec
        if job.queue_level != levels.HIGH and (count := shares.replicas[spec.job_id]):
            shares.free += (count - spec.min_replicas) * spec.gpus_per_replica
            shares.replicas[spec.job_id] = spec.min_replicas
