"""Shared GPUs in plans: jobs that share one, and pods that ask for parts.

In reading order: `shared_decision` (the hook), `tenants` (which jobs share which GPU), `stand_ins` (a job of one GPU
stands in for them), `answers` (what each of them gets), by `parts`; `gpus_for_pods` (GPUs that jobs give up), by
`spare_gpus`.

Rule: these names are the door; others import nothing else from here.
"""

from voda.planner.sharing.gpus_for_pods import SpareGpus
from voda.planner.sharing.parts import part_of
from voda.planner.sharing.shared_decision import share_gpus
from voda.planner.sharing.stand_ins import StandIns, with_stand_ins

__all__ = [
    "SpareGpus",
    "StandIns",
    "part_of",
    "share_gpus",
    "with_stand_ins",
]
