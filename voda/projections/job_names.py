"""What the names of jobs mean: the live job of a name, else the one submitted last.

Rule: a name comes with its namespace unless that is `default`, as in `vision_digits`; the id of the first run of a name
is that name, so an id that shall mean nothing else has `@` before it.
"""

from collections.abc import Sequence
from typing import Final

from voda.domain.job import JobSpec

EXACT: Final = "@"
"""Stands before an id that means the job with that id, whatever names there are."""
_DEFAULT_NAMESPACE: Final = "default"


class JobNames:
    """The names of all jobs that are remembered."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}
        """Name -> the job of that name that was submitted last."""
        self._live: dict[str, dict[str, None]] = {}
        """Name -> the live jobs of that name, in the order of submission: objects of a cluster may share one."""

    def add(self, spec: JobSpec, *, is_live: bool) -> None:
        """Add a job that was submitted after all others of its name."""
        name = name_of(spec)
        self._latest[name] = spec.job_id
        if is_live:
            self._live.setdefault(name, {})[spec.job_id] = None

    def end(self, spec: JobSpec) -> None:
        """Note that a job has ended."""
        name = name_of(spec)
        del self._live[name][spec.job_id]
        if not self._live[name]:
            del self._live[name]

    def forget(self, spec: JobSpec) -> None:
        """Forget an ended job."""
        if self._latest.get(name := name_of(spec)) == spec.job_id:
            del self._latest[name]

    def live(self, name: str) -> str | None:
        """Return the live job of a name; of several, the one submitted last."""
        return next(reversed(self._live.get(name, {})), None)

    def id_of(self, named: str) -> str:
        """Return the id that a text means: that of the job of that name, else the text as an id."""
        if named.startswith(EXACT):
            return named.removeprefix(EXACT)
        return self.live(named) or self._latest.get(named, named)

    def elsewhere(self, name: str) -> Sequence[str]:
        """Return the latest job of that name in each namespace."""
        return [job_id for full, job_id in self._latest.items() if full == name or full.endswith(f"_{name}")]


def full_name(namespace: str, name: str) -> str:
    """Return a name with its namespace, unless that is `default`."""
    return name if namespace == _DEFAULT_NAMESPACE else f"{namespace}_{name}"


def name_of(spec: JobSpec) -> str:
    """Return the name of a job with its namespace, unless that is `default`."""
    return full_name(spec.namespace, spec.name or spec.job_id)
