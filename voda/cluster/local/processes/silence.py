"""Which jobs have printed nothing since they were started or resized, for users to see; no decision rests on it.

Rules: a change is seen by the round that follows it. Files are looked at in a thread: their sizes once then, and what
was printed since only once that is due, and for as long as it is nothing. What a launcher prints does not count.
"""

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct

from voda.cluster.local.context import JobState, LocalContext
from voda.cluster.local.folder import JobFolder
from voda.events.types import JobSilent
from voda.programs.last_words import MOST_BYTES, last_words

SILENT_S: Final = 60.0
AGAIN_S: Final = 10.0
_READ_S: Final = 5.0


class _Watched(Struct, kw_only=True):
    """A job since its last change."""

    workers: tuple[int, ...]
    """That hold devices."""
    runs: Mapping[str, int]
    """Replica -> its run."""
    since: float
    before: int = 0
    """Workers until then."""
    look_at: float = math.inf
    """Never, once it has printed."""
    sizes: Mapping[str, int] | None = None
    """Replica -> size of its output at the change; None until they are read."""


class SilenceWatch:
    """Tells of jobs that are silent, and that they are no more."""

    def __init__(self, context: LocalContext, *, silent_s: float = SILENT_S, again_s: float = AGAIN_S) -> None:
        self._context = context
        self._silent_s = silent_s
        self._again_s = again_s
        self._began_at = context.now()
        self._jobs: dict[str, _Watched] = {}

    def look(self, jobs: Mapping[str, JobState]) -> None:
        """Look at all jobs there are; to be called every few seconds."""
        self._jobs = {job_id: watched for job_id, watched in self._jobs.items() if job_id in jobs}
        for job_id, state in jobs.items():
            record = state.record
            workers = tuple(sorted(record.devices)) if record.state == "running" and not record.ended else ()
            runs = {name: record.runs.get(name, 0) for name in state.replicas_to_run()} if workers else {}
            watched = self._jobs.get(job_id)
            if watched is None or (watched.workers, watched.runs) != (workers, runs):
                self._change(state, workers, runs, watched)
            elif watched.sizes is not None and watched.look_at <= self._context.now():
                watched.look_at = self._context.now() + self._again_s
                read = partial(_has_printed, state.folder, watched.sizes)
                self._context.in_thread(read, partial(self._heed, state, watched), within_s=_READ_S)

    def _change(
        self, state: JobState, workers: tuple[int, ...], runs: Mapping[str, int], last: _Watched | None
    ) -> None:
        now, record = self._context.now(), state.record
        is_taken_over = last is None and record.resumed_at < self._began_at
        watched = _Watched(workers=workers, runs=runs, since=now, before=len(last.workers) if last else 0)
        self._jobs[record.job_id] = watched
        if not is_taken_over:
            self._note(state, None)
        if workers and (record.silent_since or not is_taken_over):
            # Whether a job that was taken over has printed since its change is not known, unless it was silent.
            watched.look_at = now + self._silent_s
            read = partial(_sizes, state.folder, runs, last.runs if last else {})
            self._context.in_thread(read, partial(setattr, watched, "sizes"), within_s=_READ_S)

    def _heed(self, state: JobState, watched: _Watched, has_printed: bool | None) -> None:
        if self._jobs.get(state.record.job_id) is not watched or has_printed is None:
            return
        if has_printed:
            watched.look_at = math.inf
            self._note(state, None)
        elif not state.record.silent_since:
            self._note(state, watched)

    def _note(self, state: JobState, silent: _Watched | None) -> None:
        """Record and tell that a job is silent, or with None that it is not, where that is new."""
        since = silent.since if silent is not None else 0.0
        if since == state.record.silent_since:
            return
        state.record.silent_since = since
        state.save()
        before = silent.before if silent is not None else 0
        self._context.tell(JobSilent(job_id=state.record.job_id, since=since or None, workers_before=before))


def _sizes(folder: JobFolder, runs: Mapping[str, int], before: Mapping[str, int]) -> Mapping[str, int]:
    """Return how large the outputs are; of a replica that was started anew, how large it was then."""
    found = {}
    for name, run in runs.items():
        alive = folder.replica(name).alive(run) if before.get(name) != run else None
        found[name] = _size(folder, name) if alive is None else alive.log_at
    return found


def _size(folder: JobFolder, name: str) -> int:
    with suppress(OSError), folder.files.opened(folder.replica(name).log) as file:
        return os.fstat(file).st_size
    return 0


def _has_printed(folder: JobFolder, sizes: Mapping[str, int]) -> bool:
    """Return whether a program has printed something since its outputs had these sizes, or they were cut since."""
    for name, at in sizes.items():
        with suppress(OSError), folder.files.opened(folder.replica(name).log) as file:
            size = os.fstat(file).st_size
            if size < at or last_words(os.pread(file, MOST_BYTES, max(at, size - MOST_BYTES))).is_own:
                return True
    return False
