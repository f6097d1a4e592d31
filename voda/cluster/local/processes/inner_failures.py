"""Failures inside a replica that goes on: of ranks that its launcher starts again, and processes killed for memory.

Rules: looked for in a thread, every few seconds, in what was printed since, where a launcher starts ranks again, and in
the counters of control groups, where memory is limited. A failure that ends the replica is told by the replica's exit,
so each is told at the look after the one that found it, if the replica is still there.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from voda.cluster.local.context import JobState, LocalContext
from voda.cluster.local.exit_policy import end_of
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.isolation.cgroups import memory_kills
from voda.cluster.local.processes.replica_folder import Exit
from voda.cluster.local.run_spec import LAUNCHER
from voda.events.types import ProgramFailed
from voda.programs.last_words import MOST_BYTES, LastWords, last_words

AGAIN_S: Final = 5.0
_READ_S: Final = 5.0
_MOST_LETTERS: Final = 300
"""Of its last words, in the log of events."""


class _Look(Struct, frozen=True, kw_only=True):
    """What a look at a replica found."""

    run: int
    printed: int
    """Bytes in all."""
    killed: int = 0
    """Processes for memory, in all."""
    said: LastWords = LastWords()
    """Where it failed."""
    times: int = 0
    """Failures since the look before."""
    is_memory: bool = False


class InnerFailures:
    """Tells of the failures inside replicas."""

    def __init__(self, context: LocalContext, *, again_s: float = AGAIN_S) -> None:
        self._context = context
        self._again_s = again_s
        self._looks: dict[str, Mapping[str, _Look]] = {}
        """Job -> replica -> the last look."""
        self._look_at: dict[str, float] = {}

    def look(self, jobs: Mapping[str, JobState]) -> None:
        """Look at all jobs there are; to be called every few seconds."""
        self._looks = {job_id: looks for job_id, looks in self._looks.items() if job_id in jobs}
        now = self._context.now()
        for job_id, state in jobs.items():
            run_spec = state.run_spec()
            if run_spec is None or self._look_at.get(job_id, 0.0) > now:
                continue
            restarts = run_spec.kind == "mpi" or run_spec.restarts_itself
            if not restarts and not any(each.memory_bytes for each in run_spec.limits.values()):
                continue
            self._look_at[job_id] = now + self._again_s
            groups = {name: self._context.config.cgroups.groups(state.group(name)) for name in state.replicas_to_run()}
            runs = {name: state.record.runs.get(name, 0) for name in groups}
            reader = _Looker(state.folder, self._looks.get(job_id, {}), state.adopted, restarts=restarts)
            read = partial(reader.read, runs, groups)
            self._context.in_thread(read, partial(self._heed, state), within_s=_READ_S)

    def _heed(self, state: JobState, looks: Mapping[str, _Look] | None) -> None:
        if looks is None:
            return
        record = state.record
        before, self._looks[record.job_id] = self._looks.get(record.job_id, {}), looks
        for name, found in before.items():
            is_same = name in looks and looks[name].run == found.run and record.judged.get(name) != found.run
            if found.times and is_same and not record.ended:
                self._tell(state, name, found)

    def _tell(self, state: JobState, name: str, found: _Look) -> None:
        run_spec = state.run_spec()
        limits = run_spec.limits.get(run_spec.role_of(name)) if run_spec is not None else None
        limit = (limits.memory_bytes or 0) if limits is not None and found.is_memory and name != LAUNCHER else 0
        memory = limit if found.is_memory else None
        ended = Exit(run=found.run, rank_code=found.said.exit_code, memory_limit_bytes=memory)
        reason = end_of(ended, found.said, letters=_MOST_LETTERS)
        fact = ProgramFailed(job_id=state.record.job_id, replica=name, reason=reason, times_inside=found.times)
        self._context.tell(fact)


class _Looker(Struct, frozen=True):
    """Looks at the replicas of a job, in a thread."""

    folder: JobFolder
    before: Mapping[str, _Look]
    adopted: Mapping[str, int]
    """Runs of an earlier voda, which told what it saw."""
    restarts: bool
    """Whether its launcher starts ranks again."""

    def read(self, runs: Mapping[str, int], groups: Mapping[str, Sequence[Path]]) -> Mapping[str, _Look]:
        found = {}
        for name, run in runs.items():
            if (alive := self.folder.replica(name).alive(run)) is not None:
                killed, last = sum(map(memory_kills, groups[name])), self.before.get(name)
                if last is None and self.adopted.get(name) == run:
                    last = _Look(run=run, printed=self._size(name), killed=killed)
                elif last is None or last.run != run:
                    last = _Look(run=run, printed=alive.log_at)
                found[name] = self._look(name, alive.log_at, last, killed)
        return found

    def _size(self, name: str) -> int:
        with suppress(OSError), self.folder.files.opened(self.folder.replica(name).log) as file:
            return os.fstat(file).st_size
        return 0

    def _look(self, name: str, begin: int, last: _Look, killed: int) -> _Look:
        size, said, failures = last.printed, LastWords(), 0
        if self.restarts or killed > last.killed:
            with suppress(OSError), self.folder.files.opened(self.folder.replica(name).log) as file:
                size = os.fstat(file).st_size
                failures = last_words(_end(file, last.printed, size)).failures
                # What it said of it may have been there at the look before.
                said = last_words(_end(file, begin, size)) if failures or killed > last.killed else said
        # That a rank lost the others, as at a resize, is no failure of its own.
        times = max(0 if said.is_echo else failures, killed - last.killed)
        is_memory = killed > last.killed
        return _Look(run=last.run, printed=size, killed=killed, said=said, times=times, is_memory=is_memory)


def _end(file: int, begin: int, end: int) -> bytes:
    """Return the bytes of a file between two places, of which the last are taken where there are many."""
    begin = max(begin, end - MOST_BYTES)
    return os.pread(file, end - begin, begin) if begin < end else b""
