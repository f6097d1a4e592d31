"""Looks up the jobs and arrays that a new job comes after.

Rule: what has ended by now is decided now: a dependency that is met stays so, and one that cannot be met is refused.
"""

from collections.abc import Iterable, Sequence

from voda.application.read_model import ReadModel
from voda.domain.dependency import Dependency, DependencyRequest
from voda.domain.errors import InvalidField
from voda.domain.job import Phase
from voda.domain.job_array import ArrayTask
from voda.projections.job_names import full_name
from voda.projections.job_record import JobRecord

FIELD = "metadata.annotations[voda.dev/after]"


class UnknownDependency(InvalidField):
    """There is no such job yet."""


def resolve(requests: Iterable[DependencyRequest], view: ReadModel, namespace: str) -> tuple[Dependency, ...]:
    """Return the jobs and arrays by their ids, each once: a live one of that name, else the one submitted last.

    Raises:
        UnknownDependency: there is none.
        InvalidField: it has failed or was canceled, and should have completed.
    """
    return tuple(dict.fromkeys(_resolved(request, view, namespace) for request in requests))


def _resolved(request: DependencyRequest, view: ReadModel, namespace: str) -> Dependency:
    name, registry = request.name, view.job_registry
    arrays, full = registry.arrays, full_name(namespace, name)
    record = registry.find(full) or registry.find(name)
    array_id = arrays.latest(full)
    if array_id is not None:
        has_ended = view.live.cluster.array(array_id) is None
        if record is None or not (has_ended or record.is_live):
            _refuse_failed(request, arrays.tasks(array_id))
            return Dependency(job_id=array_id, array=name, condition=request.condition, is_met=has_ended)
    if record is None:
        raise UnknownDependency(FIELD, f"{FIELD}: there is no job or array {name[:80]!r}: submit it first")
    _refuse_failed(request, [record])
    return Dependency(job_id=record.spec.job_id, condition=request.condition, is_met=not record.is_live)


def refuse_circular(task: ArrayTask, after: Iterable[Dependency], view: ReadModel) -> None:
    """Raise InvalidField where a task that joins its array would wait for the array, itself or by way of others."""
    reached: set[str] = set()
    for dependency in after:
        if _waits_for_array(dependency, task.array_id, view, reached):
            raise InvalidField(
                FIELD,
                f"{FIELD}: task {task.index} of array {task.name} cannot come after {dependency.target}, which waits"
                " for that task: name single tasks of the array instead, or none",
            )


def _waits_for_array(begin: Dependency, array_id: str, view: ReadModel, reached: set[str]) -> bool:
    todo = [begin]
    while todo:
        dependency = todo.pop()
        if dependency.is_met or dependency.key in reached:
            continue
        reached.add(dependency.key)
        if dependency.array and dependency.job_id == array_id:
            return True
        array = view.live.cluster.array(dependency.job_id) if dependency.array else None
        for job_id in [dependency.job_id] if array is None else array.live:
            job = view.live.cluster.job(job_id)
            todo += job.waits_for if job is not None else ()
    return False


def _refuse_failed(request: DependencyRequest, records: Sequence[JobRecord]) -> None:
    failed = [record for record in records if not record.is_live and record.phase is not Phase.COMPLETED]
    if request.condition == "ok" and failed:
        outcome = "failed" if failed[0].phase is Phase.FAILED else "was canceled"
        raise InvalidField(
            FIELD,
            f"{FIELD}: {failed[0].spec.job_id} {outcome}, so a job after {request.name} would never start: submit it"
            f" again first, or write {request.name}:any",
        )
