"""Looks up the jobs and arrays that a new job comes after.

Rule: what has ended by now is decided now: a dependency that is met stays so, and one that cannot be met is refused.
"""

from collections.abc import Iterable, Sequence

from voda.domain.dependency import Dependency, DependencyRequest
from voda.domain.errors import InvalidField
from voda.domain.job import Phase
from voda.projections.job_names import full_name
from voda.projections.job_record import JobRecord
from voda.projections.job_registry import JobRegistry

FIELD = "metadata.annotations[voda.dev/after]"


class UnknownDependency(InvalidField):
    """There is no such job yet."""


def resolve(requests: Iterable[DependencyRequest], registry: JobRegistry, namespace: str) -> tuple[Dependency, ...]:
    """Return the jobs and arrays by their ids, each once: a live one of that name, else the one submitted last.

    Raises:
        UnknownDependency: there is none.
        InvalidField: it has failed or was canceled, and should have completed.
    """
    return tuple(dict.fromkeys(_resolved(request, registry, namespace) for request in requests))


def _resolved(request: DependencyRequest, registry: JobRegistry, namespace: str) -> Dependency:
    name = request.name
    arrays, full = registry.arrays, full_name(namespace, name)
    record = registry.find(full) or registry.find(name)
    live_array = arrays.live(full)
    array_id = live_array or arrays.latest(full)
    if array_id is not None and (record is None or (live_array and not record.is_live)):
        return _on_array(request, array_id, registry.arrays.tasks(array_id))
    if record is None:
        raise UnknownDependency(FIELD, f"{FIELD}: there is no job or array {name[:80]!r}: submit it first")
    _refuse_failed(request, [record])
    return Dependency(job_id=record.spec.job_id, condition=request.condition, is_met=not record.is_live)


def _on_array(request: DependencyRequest, array_id: str, tasks: Sequence[JobRecord]) -> Dependency:
    _refuse_failed(request, tasks)
    has_ended = not any(task.is_live for task in tasks)
    return Dependency(job_id=array_id, array=request.name, condition=request.condition, is_met=has_ended)


def _refuse_failed(request: DependencyRequest, records: Sequence[JobRecord]) -> None:
    failed = [record for record in records if not record.is_live and record.phase is not Phase.COMPLETED]
    if request.condition == "ok" and failed:
        outcome = "failed" if failed[0].phase is Phase.FAILED else "was canceled"
        raise InvalidField(
            FIELD,
            f"{FIELD}: {failed[0].spec.job_id} {outcome}, so a job after {request.name} would never start: submit it"
            f" again first, or write {request.name}:any",
        )
