"""What is learned from the reports of jobs: how they scale, how long they still need, what a restart costs them.

In reading order: `projection` (the events, and the estimates), `measurements` and `categories` (what is kept of jobs
and of their kinds), `means`, `epoch_work`, `restarts` (how it is measured), `scaling` (the law fitted to it).
"""

from voda.projections.learning.means import EpochMeans, RunningMean
from voda.projections.learning.measurements import Accuracy
from voda.projections.learning.projection import Learning
from voda.projections.learning.restarts import UndisturbedSpan
from voda.projections.learning.scaling import CategoryHistory, Scaling, estimate_scaling, fit_law

__all__ = [
    "Accuracy",
    "CategoryHistory",
    "EpochMeans",
    "Learning",
    "RunningMean",
    "Scaling",
    "UndisturbedSpan",
    "estimate_scaling",
    "fit_law",
]
