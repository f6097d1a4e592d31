"""Which replica of its job a pod is, by the names that both operators give. Pure.

Rule: index labels are not read: with runLauncherAsWorker they are off by one.
"""

import re
from typing import Final

from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod

_REPLICA: Final = re.compile(r"-(worker|master)-(0|[1-9][0-9]{0,5})")


def index(job_name: str, pod: Pod) -> int | None:
    """Return the replica index of a pod of that job; None for a launcher and for what is no replica.

    The pod alone is enough, so this works for pods that outlive their job object too.
    """
    found = _REPLICA.fullmatch(pod.metadata.name.removeprefix(job_name))
    if found is None or not pod.metadata.name.startswith(job_name):
        return None
    return int(found[2]) + _first_index(pod)


def is_launcher(pod: Pod) -> bool:
    """Return whether a pod is the launcher of an MPIJob of either version."""
    labels = pod.metadata.labels
    return "launcher" in (labels.get(well_known.OPERATOR_JOB_ROLE), labels.get(well_known.OPERATOR_REPLICA_TYPE))


def _first_index(pod: Pod) -> int:
    # Of all roles only the workers beside a Master begin at another index than 0.
    return 1 if pod.metadata.annotations.get(well_known.FIRST_INDEX) == "1" else 0
