"""Shared GPUs in plans: jobs that share one, and pods that ask for parts.

In reading order: `tenants` (which jobs share which GPU), `stand_ins` (a job of one GPU stands in for them), `answers`
(what each of them gets); `parts` and `sizes` (which part a job has, and whether any GPU is large enough);
`gpus_for_pods` (GPUs that jobs give up), by `spare_gpus`.

Rule: these names are the door; others import nothing else from here.
"""

from voda.planner.sharing.answers import with_answers
from voda.planner.sharing.gpus_for_pods import SpareGpus, serve_requests
from voda.planner.sharing.parts import part_of
from voda.planner.sharing.sizes import lacking_memory, largest_gpu_mib
from voda.planner.sharing.stand_ins import StandIns, with_stand_ins

__all__ = [
    "SpareGpus",
    "StandIns",
    "lacking_memory",
    "largest_gpu_mib",
    "part_of",
    "serve_requests",
    "with_answers",
    "with_stand_ins",
]
