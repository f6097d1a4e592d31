"""What a torchrun command itself says of the agents that meet, which goes before all that voda tells them.

Rule: only what can never train at some size of the job is warned of.
"""

import re
from collections.abc import Iterator
from typing import Final

from voda.domain.job import JobSpec
from voda.kinds.base import FieldWarning, JobManifest
from voda.kinds.launcher import starts_agents

_OPTION: Final = re.compile(
    r"(?<=\s)--(standalone(?=\s)|node[-_]rank\b|nnodes[=\s](?P<least>\d+)(:(?P<most>\d+))?(?=\s))"
)
_PROGRAM: Final = re.compile(r"\s\S+\.py\b")
"""Ends the options of torchrun; those behind it are the program's."""


def size_warnings(job: JobManifest, spec: JobSpec) -> Iterator[FieldWarning]:
    """Yield the options of torchrun that leave no choice of a size, where the job has more than one worker."""
    index, container = job.main_container(job.resized_role)
    command = (*(container.command or ()), *(container.args or ()))
    if spec.max_replicas < 2 or not starts_agents(command):
        return
    words = " ".join(command) + " "
    for option in _OPTION.finditer(_PROGRAM.split(words, maxsplit=1)[0] + " "):
        if (least := option["least"]) is not None:
            most = int(option["most"] or least)
            if int(least) <= spec.min_replicas and spec.max_replicas <= most:
                continue
        sizes = f"{spec.min_replicas} to {spec.max_replicas}" if spec.is_elastic else f"{spec.max_replicas}"
        message = (
            f"torchrun's {option[0]} goes before what voda tells it, and does not suit {sizes} workers that train"
            " together: leave it out, and voda sets it at each size"
        )
        field = f"{job.path(job.resized_role)}.template.spec.containers[{index}].command"
        yield FieldWarning(field=field, message=message)
