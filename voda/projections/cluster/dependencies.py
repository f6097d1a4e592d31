"""Which live jobs wait for others to end, and what has become of those: the part of the live cluster behind `--after`.

Rules: a dependency, once met, is dropped from its job; one that cannot be met any more stays, and says why. An array
ends when all of its indices were seen and ended, or when it was canceled as a whole and no task is live. The ends of
the newest 10,000 jobs and arrays are remembered, as a job may end while another that names it is being submitted.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.dependency import Dependency
from voda.domain.job import Job, JobSpec, Phase
from voda.domain.job_array import ArrayTask, indices_of
from voda.domain.reasons.requests import EndUnknown, NotCompleted, TasksMissing, Unmet
from voda.events.message_pack import append_map

_MOST_ENDS: Final = 10_000
_MOST_IDLE: Final = 1_000
"""Arrays without a live task that wait for more tasks; the oldest ones beyond these count as ended."""
_ARRAY_OF_TWO: Final = b"\x92"


class LiveArray(Struct, kw_only=True):
    """An array of which some tasks are live, or have yet to come; changed in place."""

    live: dict[str, None] = {}
    """Job ids."""
    failure: NotCompleted | None = None
    """The first task that did not complete."""
    indices: str
    """Of all tasks: `0-99`."""
    seen: dict[int, None] = {}
    """Indices of the tasks that were submitted."""
    is_canceled: bool = False
    """As a whole."""

    @property
    def has_ended(self) -> bool:
        is_whole = self.is_canceled or len(self.seen) >= len(indices_of(self.indices))
        return is_whole and not self.live

    def awaits(self, index: int) -> bool:
        """Return whether a task of that index has yet to come."""
        return not self.is_canceled and index not in self.seen


_State = tuple[dict[str, LiveArray], dict[str, Unmet | None]]


class Dependencies:
    """Follows the ends of jobs; it is asked and changed by the live cluster alone."""

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._arrays: dict[str, LiveArray] = {}
        self._ends: dict[str, Unmet | None] = {}
        """Key of a dependency -> why it did not complete; None: it completed."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Key of a dependency -> jobs that wait for it: an index of `Job.waits_for`."""

    def dump(self) -> bytes:
        buffer = bytearray(_ARRAY_OF_TWO)
        append_map(buffer, self._arrays)
        append_map(buffer, self._ends)
        return bytes(buffer)

    def load(self, state: bytes) -> None:
        self._arrays, self._ends = msgspec.msgpack.decode(state, type=_State)
        self._waiting = {}

    def add(self, spec: JobSpec) -> None:
        """Note that a job is live."""
        if (task := spec.array) is not None:
            array = self._arrays.setdefault(task.array_id, LiveArray(indices=task.indices))
            array.live[spec.job_id] = array.seen[task.index] = None

    def array(self, array_id: str) -> LiveArray | None:
        """Return an array that has not ended; read-only."""
        return self._arrays.get(array_id)

    def cancel_array(self, task: ArrayTask) -> None:
        """Note that the array of a live task is canceled as a whole."""
        if (array := self._arrays.get(task.array_id)) is not None:
            array.is_canceled = True

    def index(self, job: Job) -> None:
        """Note what a live job waits for."""
        for dependency in job.waits_for:
            self._waiting.setdefault(dependency.key, {})[job.spec.job_id] = None

    def end(self, job: Job, phase: Phase) -> Iterator[str]:
        """Note the end of a job, and yield the jobs that waited for it or its array, to be resolved."""
        job_id, array = job.spec.job_id, job.spec.array
        for dependency in job.waits_for:
            self._waiting.get(dependency.key, {}).pop(job_id, None)
        failure = None
        if phase in (Phase.FAILED, Phase.CANCELED):
            failure = NotCompleted(job=job_id, is_canceled=phase is Phase.CANCELED)
        yield from self._note(job_id, failure)
        if array is None or (tasks := self._arrays.get(array.array_id)) is None:
            return
        tasks.live.pop(job_id, None)
        is_first = failure is not None and tasks.failure is None
        tasks.failure = tasks.failure or failure
        key = f"array {array.array_id}"
        if tasks.has_ended:
            del self._arrays[array.array_id]
            yield from self._note(key, tasks.failure)
        elif is_first:
            yield from list(self._waiting.get(key, ()))
        if not tasks.live and not tasks.has_ended:
            yield from self._end_idle()

    def _end_idle(self) -> Iterator[str]:
        idle = [array_id for array_id, array in self._arrays.items() if not array.live]
        for array_id in idle[:-_MOST_IDLE]:
            failure = self._arrays.pop(array_id).failure or TasksMissing(array="")
            yield from self._note(f"array {array_id}", failure)

    def resolved(self, job: Job) -> Job:
        """Return a job without the dependencies that are met by now, and with the one that cannot be met any more."""
        left: list[Dependency] = []
        never: Unmet | None = None
        for dependency in job.waits_for:
            is_open, failure = self._state(dependency)
            if dependency.condition == "any":
                left += [dependency] if is_open else []
            elif failure or is_open:
                left.append(dependency)
                never = never or failure
        if len(left) == len(job.waits_for) and never == job.unsatisfiable:
            return job
        return replace(job, waits_for=tuple(left), unsatisfiable=never)

    def _state(self, dependency: Dependency) -> tuple[bool, Unmet | None]:
        """Return whether what is waited for is live, and why it can no longer complete."""
        tasks = self._arrays.get(dependency.job_id) if dependency.array else None
        if tasks is not None:
            return True, _of_target(tasks.failure, dependency)
        if not dependency.array and self._is_live(dependency.job_id):
            return True, None
        if dependency.key not in self._ends:
            return False, EndUnknown(target=dependency.target)
        return False, _of_target(self._ends[dependency.key], dependency)

    def _note(self, key: str, failure: Unmet | None) -> Iterator[str]:
        self._ends.pop(key, None)
        self._ends[key] = failure
        if len(self._ends) > _MOST_ENDS:
            del self._ends[next(iter(self._ends))]
        yield from self._waiting.pop(key, ())


def _of_target(failure: Unmet | None, dependency: Dependency) -> Unmet | None:
    """Return a failure with the array that was waited for, as its user may name it."""
    if isinstance(failure, NotCompleted | TasksMissing) and dependency.array:
        return replace(failure, array=dependency.target)
    return failure
