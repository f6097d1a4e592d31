"""Elastic Horovod: what its launcher needs to be told so that it survives what voda does to a job.

Rule: hints, no refusals: a program of any other name may know better.
"""

from collections.abc import Iterator
from typing import Final

from voda.manifests.parsed import Omission
from voda.manifests.programs import main_container
from voda.manifests.read.schema import MPIJob

_PROGRAM: Final = "horovodrun"
# Both of --slots and --slots-per-host are the same option.
_SLOTS: Final = "--slots"
_COOLDOWN: Final = "--blacklist-cooldown-range"


def hints(job: MPIJob, *, needs_slots: bool) -> Iterator[Omission]:
    """Yield what the launcher of an elastic job misses.

    Args:
        job: whose number of replicas may change.
        needs_slots: whether the operator's discover_hosts.sh lists hosts without their slots (v2beta1).
    """
    place, container = main_container(job, job.roles["Launcher"])
    # Often it is one word of a shell's.
    line = " ".join((*(container.command or ()), *(container.args or ())))
    if _PROGRAM not in line:
        return
    field = f"{job.replica_specs}.Launcher.template.spec.containers[{place}].command"
    if needs_slots and _SLOTS not in line:
        slots = job.spec.slots_per_worker or 1
        message = f"add --slots-per-host {slots} to horovodrun: discover_hosts.sh lists hosts without their slots"
        yield Omission(field=field, message=message)
    if _COOLDOWN not in line:
        message = f"add {_COOLDOWN} 10 60 to horovodrun: without it a worker that left once is never used again"
        yield Omission(field=field, message=message)
