"""What is learned from the reports of jobs: how they scale, how long they still need, what a restart costs them.

In reading order: `projection` (the events, and the estimates), `doubts` (reports that are not believed),
`measurements` and `categories` (what is kept of jobs and of their kinds), `means`, `epoch_work`, `restarts` (how it is
measured), `estimates` and `scaling` (what follows from it), `cache` (so that it is made once).
"""

from voda.projections.learning.epoch_work import EpochWork
from voda.projections.learning.means import EpochMeans, RunningMean
from voda.projections.learning.measurements import JobMeasurements
from voda.projections.learning.projection import Learning
from voda.projections.learning.scaling import CategoryHistory, Scaling, Sizes, estimate_scaling

__all__ = [
    "CategoryHistory",
    "EpochMeans",
    "EpochWork",
    "JobMeasurements",
    "Learning",
    "RunningMean",
    "Scaling",
    "Sizes",
    "estimate_scaling",
]
