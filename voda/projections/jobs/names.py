"""What the names of jobs and arrays mean: the live one of a name, else the one submitted last; the caller's goes first.

Rules: a name comes with its namespace unless that is `default`, as in `vision_digits`; `ada/digits` is ada's job of
that name. The id of the first run of a name is that name, so an id that shall mean nothing else has `@` before it. No
new name is the id of another name's run, so that a text that lists and commands show means one job.
"""

from collections.abc import Collection, Sequence
from typing import Final

from voda.domain.job import JobSpec
from voda.projections.jobs.record import JobRecord

EXACT: Final = "@"
"""Stands before an id that means the job with that id, whatever names there are."""
OF_OWNER: Final = "/"
"""Stands between an owner and a name; no name has it."""
_DEFAULT_NAMESPACE: Final = "default"


class JobNames:
    """The names of all jobs that are remembered."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, str]] = {}
        """Name -> user -> the user's job of that name that was submitted last, in the order of submission."""
        self._live: dict[str, dict[str, str]] = {}
        """Name -> the live jobs of that name with their users, in the order of submission: objects of a cluster may
        share one."""

    def add(self, spec: JobSpec, *, is_live: bool) -> None:
        """Add a job that was submitted after all others of its name."""
        name = name_of(spec)
        latest = self._latest.setdefault(name, {})
        # Taken out first, so that the user comes last.
        latest.pop(spec.user, None)
        latest[spec.user] = spec.job_id
        if is_live:
            self._live.setdefault(name, {})[spec.job_id] = spec.user

    def end(self, spec: JobSpec) -> None:
        """Note that a job has ended."""
        name = name_of(spec)
        del self._live[name][spec.job_id]
        if not self._live[name]:
            del self._live[name]

    def forget(self, spec: JobSpec) -> None:
        """Forget an ended job."""
        latest = self._latest.get(name := name_of(spec), {})
        if latest.get(spec.user) == spec.job_id:
            del latest[spec.user]
            if not latest:
                del self._latest[name]

    def live(self, name: str) -> str | None:
        """Return the live job of a name; of several, the one submitted last."""
        return next(reversed(self._live.get(name, {})), None)

    def latest(self, name: str) -> str | None:
        """Return the job of a name that was submitted last."""
        return next(reversed(self._latest.get(name, {}).values()), None)

    def users_of(self, name: str) -> Collection[str]:
        """Return the users who have jobs of a name."""
        return self._latest.get(name, {}).keys()

    def id_of(self, named: str, user: str | None = None) -> str:
        """Return the id that a text means to a user, None = to nobody in particular.

        That of the user's own job of that name, else of anybody's, else the text as an id.
        """
        if named.startswith(EXACT):
            return named.removeprefix(EXACT)
        owner, slash, name = named.rpartition(OF_OWNER)
        if slash:
            return self._of(owner, name) or named
        own = None if user is None else self._of(user, named)
        return own or self.live(named) or self.latest(named) or named

    def elsewhere(self, name: str) -> Sequence[str]:
        """Return the latest job of that name in each namespace."""
        names = [full for full in self._latest if full == name or full.endswith(f"_{name}")]
        return [job_id for full in names if (job_id := self.latest(full)) is not None]

    def _of(self, user: str, name: str) -> str | None:
        """Return the user's live job of a name, else the one that the user submitted last."""
        live = (job_id for job_id, owner in reversed(self._live.get(name, {}).items()) if owner == user)
        return next(live, None) or self._latest.get(name, {}).get(user)


def full_name(namespace: str, name: str) -> str:
    """Return a name with its namespace, unless that is `default`."""
    return name if namespace == _DEFAULT_NAMESPACE else f"{namespace}_{name}"


def in_namespace(namespace: str, named: str) -> str:
    """Return a text that names a job, perhaps with its owner, with the namespace, unless that is `default`."""
    owner, slash, name = named.rpartition(OF_OWNER)
    return f"{owner}{slash}{full_name(namespace, name)}"


def name_of(spec: JobSpec) -> str:
    """Return the name of a job with its namespace, unless that is `default`."""
    return full_name(spec.namespace, spec.name or spec.job_id)


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
        """Return the id of the array that a text means to a user, as with jobs: the user's own one goes first.

        The text may have the indices, as lists show it: `sweep[0-9]`; then the array submitted last that has them.
        """
        if named.startswith(EXACT):
            return named.removeprefix(EXACT)
        name, bracket, indices = named.partition("[")
        if bracket:
            return self._with_indices(name, indices[:-1], user) if indices.endswith("]") else None
        owner, slash, name = named.rpartition(OF_OWNER)
        if slash:
            return self.latest_of(name, owner)
        return self.latest_of(named, user) or self._latest_named(named)

    def _with_indices(self, named: str, indices: str, user: str | None) -> str | None:
        owner, slash, name = named.rpartition(OF_OWNER)
        found = None
        for array_id, tasks in reversed(self._tasks.items()):
            spec = next(iter(tasks.values())).spec
            if (
                spec.array is None
                or spec.array.indices != indices
                or full_name(spec.namespace, spec.array.name) != name
            ):
                continue
            if spec.user == (owner if slash else user):
                return array_id
            found = found or array_id
        return None if slash else found

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
