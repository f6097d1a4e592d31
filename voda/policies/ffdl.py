"""FfDL Optimizer: the sizes with the highest total speedup, by dynamic programming over jobs and GPUs.

Saxena et al., MASCOTS 2020. Jobs whose minimum does not fit are trimmed in order of submission, a later small one
passing a large one; each other job then has a size in [min, max], and the sum of T(n) is the highest there is.
Equal sums: see `toolkit/knapsack.py`.
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import give_first, grow_by_gain, least
from voda.policies.toolkit.estimates import speedup
from voda.policies.toolkit.knapsack import add_best_steps
from voda.policies.toolkit.order import by_submission
from voda.policies.toolkit.reasons import explained


class Ffdl:
    """See the module."""

    name: ClassVar[str] = "ffdl"
    title: ClassVar[str] = "The highest total speedup there is, for the jobs that fit"
    paper: ClassVar[str] = "Saxena et al., Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        jobs = by_submission(view)
        shares = give_first(jobs, view.capacity_gpus, least)
        fitting = [job for job in jobs if shares.replicas[job.spec.job_id]]
        curves = {job.spec.job_id: speedup(view, job) for job in fitting}
        add_best_steps([job.spec for job in fitting], curves, shares)
        # A gain too small to show in the sum is still a gain.
        grow_by_gain(fitting, shares, lambda job: curves[job.spec.job_id])
        total = sum(curve[shares.replicas[job_id]] for job_id, curve in curves.items())
        text = f"best total speedup {total:.2f} on {view.capacity_gpus} GPUs"
        return explained(view, jobs, shares, why=lambda _spec: text)
