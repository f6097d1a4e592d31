"""Looks up the jobs and arrays that a new job comes after.

Rule: what has ended by now is decided now: a dependency that is met stays so, and one that cannot be met is refused.
"""

from collections.abc import Collection, Iterable, Sequence

from voda.application.journal import JournalView
from voda.domain.dependency import Dependency, DependencyRequest
from voda.domain.errors import InvalidField, MissingReference
from voda.domain.job import Phase
from voda.domain.job_array import ArrayTask
from voda.projections.jobs.names import EXACT, OF_OWNER, full_name, in_namespace, name_of
from voda.projections.jobs.record import JobRecord

FIELD = "metadata.annotations[voda.dev/after]"


class UnknownDependency(MissingReference):
    """There is no such job yet."""


def resolve(
    requests: Iterable[DependencyRequest], view: JournalView, namespace: str, user: str
) -> tuple[Dependency, ...]:
    """Return the jobs and arrays by their ids, each once: a live one of that name, else the one submitted last.

    A bare name means the user's own, or one without an owner; `OWNER/NAME` and `@ID` also those of others.

    Raises:
        UnknownDependency: there is none.
        InvalidField: it has failed or was canceled, and should have completed.
    """
    return tuple(dict.fromkeys(_resolved(request, view, namespace, user) for request in requests))


def _resolved(request: DependencyRequest, view: JournalView, namespace: str, user: str) -> Dependency:
    name, registry = request.name, view.job_registry
    full = in_namespace(namespace, name)
    found = [each for each in (registry.find(full, user), registry.find(name, user)) if each is not None]
    record = next((each for each in found if _is_meant(name, each, user)), None)
    named = registry.arrays.tasks(registry.arrays.find(full, user) or "")
    tasks = [each for each in named if _is_meant(name, each, user)]
    if tasks and (task := tasks[0].spec.array) is not None:
        has_ended = view.cluster.array(task.array_id) is None
        is_elsewhere = record is not None and record.spec.user == user != tasks[0].spec.user
        if record is None or not (has_ended or record.is_live or is_elsewhere):
            _refuse_failed(request, tasks)
            owner = _shown_owner(
                tasks[0], registry.arrays.users_of(full_name(tasks[0].spec.namespace, task.name)), user
            )
            return Dependency(
                job_id=task.array_id, owner=owner, array=task.name, condition=request.condition, is_met=has_ended
            )
    if record is None:
        raise UnknownDependency(FIELD, f"{FIELD}: {_unknown(name[:80], [*found, *named])}")
    _refuse_failed(request, [record])
    owner = _shown_owner(record, registry.names.users_of(name_of(record.spec)), user)
    return Dependency(job_id=record.spec.job_id, owner=owner, condition=request.condition, is_met=not record.is_live)


def _shown_owner(record: JobRecord, users: Collection[str], user: str) -> str:
    """Return the owner of what a job comes after; empty where the submitter alone has something of that name."""
    owner = record.spec.user
    return owner if owner != user or len(users) > 1 else ""


def _unknown(name: str, others: Sequence[JobRecord]) -> str:
    if not others:
        return f"there is no job or array {name!r}: submit it first"
    owner = others[0].spec.user
    return f"you have no job or array {name!r}, and that of {owner} is meant only as {owner}{OF_OWNER}{name}"


def _is_meant(name: str, record: JobRecord, user: str) -> bool:
    return OF_OWNER in name or name.startswith(EXACT) or not user or record.spec.user in ("", user)


def refuse_circular(task: ArrayTask, after: Iterable[Dependency], view: JournalView) -> None:
    """Raise InvalidField where a task that joins its array would wait for the array, itself or by way of others."""
    reached: set[str] = set()
    for dependency in after:
        if _waits_for_array(dependency, task.array_id, view, reached):
            raise InvalidField(
                FIELD,
                f"{FIELD}: task {task.index} of array {task.name} cannot come after {dependency.target}, which waits"
                " for that task: name single tasks of the array instead, or none",
            )


def _waits_for_array(begin: Dependency, array_id: str, view: JournalView, reached: set[str]) -> bool:
    todo = [begin]
    while todo:
        dependency = todo.pop()
        if dependency.is_met or dependency.key in reached:
            continue
        reached.add(dependency.key)
        if dependency.array and dependency.job_id == array_id:
            return True
        array = view.cluster.array(dependency.job_id) if dependency.array else None
        for job_id in [dependency.job_id] if array is None else array.live:
            job = view.cluster.job(job_id)
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
