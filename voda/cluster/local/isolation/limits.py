"""How much memory, CPU and how many processes a replica may have, from its manifest. Pure.

Rule: the limits of the container that trains count, as Kubernetes reads them. All ranks of an MPIJob are processes of
its launcher on one machine, so that has the limits of the launcher and of all workers together.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from voda.domain.errors import InvalidField, InvalidInput
from voda.kinds.base import JobManifest
from voda.kinds.quantities import milli

MEMORY: Final = "memory"
CPU: Final = "cpu"
_BOUNDS: Final = {
    MEMORY: (1_000 << 20, 1_000 << 50, "1Mi to 1Pi of memory"),
    CPU: (10, 1_000_000_000, "10m to 1M of CPU"),
}
"""Least and most, thousandths, and both as one says them. Beneath the least no kernel sets a limit; no machine has the
most, and the sums that an MPIJob's launcher gets are numbers that kernels take."""


class Limits(Struct, frozen=True, kw_only=True):
    memory_bytes: int | None = None
    """None: no limit."""
    cpu_milli: int | None = None
    """Thousandths of a CPU."""
    pids: int | None = None
    """Processes and threads."""
    nice: int = 0
    """How much it gives way to what has no such limits, 0 to 19."""
    gpus: frozenset[int] | None = None
    """Minor numbers of the GPUs that it may open; None: of all."""


def role_limits(job: JobManifest) -> Mapping[str, Limits]:
    """Return role (launcher, worker, master) -> the limits of its main container.

    Raises:
        InvalidField: an amount is none, or out of bounds.
    """
    found = {}
    for role in job.roles:
        index, container = job.main_container(role)
        limits = (container.resources.limits if container.resources else None) or {}
        path = f"{job.path(role)}.template.spec.containers[{index}].resources.limits"
        amounts = {name: _amount(limits.get(name), f"{path}.{name}", *bounds) for name, bounds in _BOUNDS.items()}
        memory = amounts[MEMORY]
        found[role.lower()] = Limits(memory_bytes=None if memory is None else memory // 1_000, cpu_milli=amounts[CPU])
    return found


def launcher_limits(limits: Mapping[str, Limits], workers: int) -> Limits:
    """Return the limits of a launcher with the ranks of so many workers; none where a worker has none."""
    own, each = limits.get("launcher", Limits()), limits.get("worker", Limits())
    return Limits(
        memory_bytes=_together(own.memory_bytes, each.memory_bytes, workers, MEMORY),
        cpu_milli=_together(own.cpu_milli, each.cpu_milli, workers, CPU),
    )


def _together(own: int | None, each: int | None, workers: int, name: str) -> int | None:
    _, most, _ = _BOUNDS[name]
    unit = 1_000 if name == MEMORY else 1
    return None if each is None else min((own or 0) + each * max(workers, 1), most // unit)


def _amount(quantity: str | int | float | None, field: str, least: int, most: int, expected: str) -> int | None:
    """Return thousandths."""
    if quantity is None:
        return None
    try:
        amount = milli(quantity)
    except InvalidInput as error:
        raise InvalidField(field, f"{field}: {error}") from error
    if not least <= amount <= most:
        raise InvalidField(field, f"{field}: expected {expected}, got {str(quantity)[:40]!r}")
    return amount
