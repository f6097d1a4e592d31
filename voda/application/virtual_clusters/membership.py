"""In which virtual cluster a job is, and whether its user may be there.

Rule: a job stays in the virtual cluster that it was submitted to, whoever becomes a member later; admins may submit to
all of them.
"""

from typing import Final

from msgspec.structs import replace

from voda.auth.callers import Caller
from voda.cells.gangs import HIGHEST, OPPORTUNISTIC
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER, CellsSpec
from voda.domain.errors import InvalidField, NotAllowed
from voda.domain.job import JobSpec

_FIELD: Final = "metadata.annotations[voda.dev/virtual-cluster]"
_PIN: Final = "metadata.annotations[voda.dev/pinned-cell]"
PRIORITY_FIELD: Final = "metadata.annotations[voda.dev/priority]"


def in_virtual_cluster(cells: CellsSpec | None, spec: JobSpec, caller: Caller) -> JobSpec:
    """Return a job with its virtual cluster: the one that it names, else that of its user; none where `cells` is None.

    Raises:
        InvalidField: there is no such virtual cluster or pinned cell, or the priority is out of bounds.
        NotAllowed: the user is no member.
    """
    if cells is None:
        _refuse_without(spec)
        return spec
    name = spec.virtual_cluster or cells.home_of(spec.user)
    known = dict.fromkeys((*cells.virtual_clusters, DEFAULT_VIRTUAL_CLUSTER))
    if name not in known:
        raise InvalidField(
            _FIELD,
            f"{_FIELD}: pool {spec.pool} has no virtual cluster {name!r}, expected one of {', '.join(known)[:400]}",
        )
    if caller.role != "admin" and not cells.has_member(name, spec.user):
        homes = [each for each in known if cells.has_member(each, spec.user)]
        raise NotAllowed(
            f"user {spec.user or 'nobody'} is no member of virtual cluster {name}: submit to"
            f" {' or '.join(homes)[:400] or 'another pool'}, or ask an admin to become one"
        )
    refuse_priority(cells, spec.priority, PRIORITY_FIELD)
    refuse_lent_cells(cells, spec, PRIORITY_FIELD)
    _refuse_unknown_pin(cells, spec, name)
    return replace(spec, virtual_cluster=name)


def refuse_priority(cells: CellsSpec | None, priority: int, field: str) -> None:
    """Raise InvalidField for a priority that means nothing in a pool with virtual clusters."""
    if cells is not None and not OPPORTUNISTIC <= priority <= HIGHEST:
        raise InvalidField(
            field,
            f"{field}: in a pool with virtual clusters expected 0 to {HIGHEST}, or {OPPORTUNISTIC} for opportunistic"
            f" work without a guarantee, got {priority}",
        )


def refuse_lent_cells(cells: CellsSpec | None, spec: JobSpec, field: str) -> None:
    """Raise InvalidField for a job that runs on idle cells alone, and could not give them back."""
    if cells is not None and not spec.is_restartable and not spec.is_guaranteed:
        raise InvalidField(
            field,
            f"{field}: a job that is not restartable runs within a guarantee, as it could not give idle cells back:"
            f" expected 0 to {HIGHEST}, got {spec.priority}",
        )


def refuse_pin_without_guarantee(spec: JobSpec, field: str) -> None:
    """Raise InvalidField for a job that names a pinned cell and has no part in the guarantee."""
    if spec.pinned_cell and not spec.is_guaranteed:
        raise InvalidField(
            field,
            f"{field}: a job in pinned cell {spec.pinned_cell!r} has a guarantee: expected 0 to {HIGHEST}, got"
            f" {spec.priority}",
        )


def _refuse_unknown_pin(cells: CellsSpec, spec: JobSpec, name: str) -> None:
    if not spec.pinned_cell:
        return
    pins = {pin: owner for owner, each in cells.virtual_clusters.items() for pin in each.pins}
    if pins.get(spec.pinned_cell) != name:
        own = ", ".join(pin for pin, owner in pins.items() if owner == name)[:400]
        other = pins.get(spec.pinned_cell)
        raise InvalidField(
            _PIN,
            f"{_PIN}: virtual cluster {name} has no pinned cell {spec.pinned_cell!r}"
            + (f", it is one of {other}" if other else "")
            + (f"; expected one of {own}" if own else ""),
        )
    refuse_pin_without_guarantee(spec, PRIORITY_FIELD)


def _refuse_without(spec: JobSpec) -> None:
    if spec.pinned_cell:
        raise InvalidField(
            _PIN,
            f"{_PIN}: pool {spec.pool} has no virtual clusters, got {spec.pinned_cell!r}: leave it out",
        )
    if spec.virtual_cluster:
        raise InvalidField(
            _FIELD,
            f"{_FIELD}: pool {spec.pool} has no virtual clusters, got {spec.virtual_cluster!r}: leave it out",
        )
