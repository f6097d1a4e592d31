"""AFS-L: one replica at a time to the job of top priority, which weighs the time left against the gain.

Hwang et al., NSDI 2021, Algorithm 1. Of two jobs without GPUs the shorter one wins. Otherwise the longer one, each
at its own share, wins if its gain relative to the size it would have exceeds the shorter one's gain relative to
the size it has. (The ancestor measures both lengths at one job's share.) A job without GPUs steps to its minimum
at once; a step that does not fit is set aside for good. Every GPU is handed out, also where it gains nothing.
"""

import math
from typing import ClassVar

from voda.domain.job import JobSpec
from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.afs_priority import Tournament
from voda.policies.toolkit.allocation import Shares
from voda.policies.toolkit.estimates import remaining_s, speedup
from voda.policies.toolkit.order import by_submission
from voda.policies.toolkit.reasons import explained


class AfsL:
    """See the module."""

    name: ClassVar[str] = "afs-l"
    title: ClassVar[str] = "Replica by replica, weighing time left against gain"
    paper: ClassVar[str] = "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        jobs = by_submission(view)
        specs = [job.spec for job in jobs]
        curves = [speedup(view, job) for job in jobs]
        tournament = Tournament([remaining_s(view, job) for job in jobs])
        counts = [0] * len(jobs)
        free = view.capacity_gpus
        while free and (top := tournament.champion()) is not None:
            spec, count, curve = specs[top], counts[top], curves[top]
            step = 1 if count else spec.min_replicas
            if (charge := step * spec.gpus_per_replica) > free:
                tournament.drop(top)
                continue
            free -= charge
            counts[top] = count = count + step
            if count < spec.max_replicas:
                tournament.raise_share(top, curve[count], curve[count + 1])
            else:
                tournament.drop(top)
        shares = Shares(free, {spec.job_id: count for spec, count in zip(specs, counts, strict=True)})
        left_s = {
            spec.job_id: remaining_s(view, job) / curve[count] if count and curve[count] > 0 else math.inf
            for job, spec, count, curve in zip(jobs, specs, counts, curves, strict=True)
        }
        return explained(view, jobs, shares, why=lambda spec: _why(spec, left_s))


def _why(spec: JobSpec, left_s: dict[str, float]) -> str:
    left = left_s[spec.job_id]
    return "by gain, time left unknown" if left == math.inf else f"by gain and time left, {left:,.0f} s at this size"
