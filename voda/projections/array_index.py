"""Arrays by their names, and the tasks of each: an index of the job registry.

Rule: it is made from the records, in their order, and has no state of its own.
"""

from collections.abc import Collection, Sequence

from voda.projections.job_names import EXACT, OF_OWNER, full_name
from voda.projections.job_record import JobRecord


class ArrayIndex:
    """Looks up arrays; of one whose tasks ended long ago, only those that are remembered are left."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, JobRecord]] = {}
        self._latest: dict[str, dict[str, str]] = {}
        """Name, with its namespace unless that is `default` -> user -> the user's array of that name that was submitted
        last, in the order of submission."""

    def add(self, record: JobRecord) -> None:
        if (task := record.spec.array) is not None:
            self._tasks.setdefault(task.array_id, {})[record.spec.job_id] = record
            latest = self._latest.setdefault(full_name(record.spec.namespace, task.name), {})
            # Taken out first, so that the user comes last.
            latest.pop(record.spec.user, None)
            latest[record.spec.user] = task.array_id

    def forget(self, record: JobRecord) -> None:
        if (task := record.spec.array) is None or (tasks := self._tasks.get(task.array_id)) is None:
            return
        tasks.pop(record.spec.job_id, None)
        if not tasks:
            del self._tasks[task.array_id]
            latest = self._latest.get(name := full_name(record.spec.namespace, task.name), {})
            if latest.get(record.spec.user) == task.array_id:
                del latest[record.spec.user]
                if not latest:
                    del self._latest[name]

    def tasks(self, array_id: str) -> Sequence[JobRecord]:
        """Return the tasks of an array, in the order of submission."""
        return list(self._tasks.get(array_id, {}).values())

    def find(self, named: str, user: str | None = None) -> str | None:
        """Return the id of the array that a text means to a user, as with jobs: the user's own one goes first."""
        if named.startswith(EXACT):
            return named.removeprefix(EXACT)
        owner, slash, name = named.rpartition(OF_OWNER)
        if slash:
            return self.latest_of(name, owner)
        return self.latest_of(named, user) or self._latest_named(named)

    def latest_of(self, name: str, user: str | None) -> str | None:
        """Return the id of the user's array of that name that was submitted last."""
        return None if user is None else self._latest.get(name, {}).get(user)

    def users_of(self, name: str) -> Collection[str]:
        """Return the users who have arrays of that name, with its namespace unless that is `default`."""
        return self._latest.get(name, {}).keys()

    def live(self, name: str) -> str | None:
        """Return the id of the array of that name, if it has live tasks."""
        array_id = self._latest_named(name)
        return array_id if array_id and any(task.is_live for task in self._tasks[array_id].values()) else None

    def _latest_named(self, name: str) -> str | None:
        return next(reversed(self._latest.get(name, {}).values()), None)
