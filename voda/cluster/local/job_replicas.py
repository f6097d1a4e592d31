"""The replicas of one job as processes: starts them, takes over those of an earlier voda, reports how they exit.

Rules: a replica has one shim at a time, whichever voda started it; an exit is reported until the job has dealt with it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from voda.cluster.local.command import command_of, limits_of
from voda.cluster.local.context import FIND_S, TRY_AGAIN_S, JobState, Timer
from voda.cluster.local.processes.marked import MarkedProcess
from voda.cluster.local.processes.replica import (
    LostExit,
    ReplicaProcess,
    ReplicaStateUnknown,
    find_replica,
    start_replica,
)
from voda.cluster.local.processes.replica_folder import Exit
from voda.cluster.local.rendezvous import free_port
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import InvalidField

_LOOK_AGAIN_S: Final = 0.02
_log = logging.getLogger(__name__)


class JobReplicas:
    """The running shims of one job.

    Args:
        state: of the job.
        on_exit: called with a replica's name and exit.
        settle: called after an exit, and when a start has to be tried again.
    """

    def __init__(self, state: JobState, *, on_exit: Callable[[str, Exit], None], settle: Callable[[], None]) -> None:
        self._state = state
        self._on_exit = on_exit
        self._settle = settle
        self._next_start = Timer(state.later, settle)
        self._running: dict[str, ReplicaProcess] = {}
        self._unknown: dict[str, int | None] = {}
        """Replicas that are inspected again in a moment -> exit status of their shim, where it was our child."""

    def __len__(self) -> int:
        return len(self._running)

    def is_running(self, name: str) -> bool:
        return name in self._running

    def is_at_work(self, name: str) -> bool:
        """Return whether a replica runs, or anything holds its lock."""
        return name in self._running or self._state.folder.replica(name).is_locked()

    def running(self) -> Mapping[str, ReplicaProcess]:
        """Return the replicas that run, by their names."""
        return self._running

    def can_start(self, name: str) -> bool:
        """Return whether a replica neither runs nor is about to be inspected again."""
        return name not in self._running and name not in self._unknown

    def start(self, name: str, run_spec: RunSpec) -> str:
        """Start a replica, and return why its program can never be started: a sentence, empty where it can.

        Raises:
            UnsafeFile: something else lies where voda writes.
            OSError: the folder cannot be written, or the system refuses another process.
        """
        folder, context = self._state.folder, self._state.context
        if (run := self._next_run(name)) is None:
            # An earlier voda started a shim a moment ago, which will write itself down or exit. Or another process
            # only checked the lock and has released it. Or the job has not dealt with the last exit.
            self.inspect(name)
            self._next_start.set(_LOOK_AGAIN_S)
            return ""
        try:
            command = command_of(self._state, run_spec, name)
            groups = context.config.cgroups.make(self._state.group(name), limits_of(self._state, run_spec, name))
            self._watch(start_replica(folder, name, run, replace(command, cgroups=groups), now=context.now()))
        except InvalidField as error:
            return f"{name} could not run: {error}"
        except ValueError as error:
            return f"{name} could not run: its command line or environment is not valid: {error}"
        return ""

    def inspect(self, name: str, status: int | None = None) -> None:
        """Find out what became of a replica's newest run, now or a little later, and report its exit; `status` is the
        exit status of its shim, where it was our child.
        """
        record = self._state.record
        if not self._state.is_open or name in self._running:
            return
        try:
            replica = find_replica(self._state.folder, name, record.runs.get(name, 0), status)
        except ReplicaStateUnknown:
            if name not in self._unknown:
                self._unknown[name] = status
                self._state.later(_LOOK_AGAIN_S, lambda: self._inspect(name, self._unknown.pop(name, None)))
            return
        if isinstance(replica, Exit):
            self._state.context.config.cgroups.remove(self._state.group(name))
        if isinstance(replica, ReplicaProcess):
            self._watch(replica)
        elif isinstance(replica, LostExit) and record.judged.get(name) != replica.run:
            self._kill_left(name, replica)
        elif replica is not None and record.judged.get(name) != replica.run:
            self._on_exit(name, replica)

    def note_adopted(self) -> None:
        """Note what an earlier voda started; agents of an older one, which noted no generation, are one where all of
        them are there.
        """
        record, run_spec = self._state.record, self._state.run_spec()
        self._state.adopted = {**record.runs}
        if record.generation is None and run_spec is not None and run_spec.is_gang:
            names = [run_spec.replica_of(index) for index in record.wanted if index not in record.done]
            record.generation = () if record.leaving or not all(map(self.is_at_work, names)) else record.wanted
            self._state.folder.save(record)

    def renew_generation(self) -> bool:
        """Return whether agents may start that meet, as all that run were started for the same workers.

        If not, those that run are told to end; once all are gone, leaving ones too, a new generation has begun.

        Raises:
            OSError: the folder cannot be read or written.
        """
        record = self._state.record
        if record.generation == record.wanted:
            return True
        if record.generation:
            # First: a resize that is taken back at once would take those that are about to end for those that it wants.
            record.generation = ()
            self._state.folder.save(record)
        for name in tuple(record.runs):
            # So that a shim that comes late, which an earlier voda started, finds no grant.
            self._state.folder.replica(name).revoke()
            self.inspect(name)
        self.stop()
        if record.ended:
            # By an exit that was learned of just now.
            return False
        if any(self.is_at_work(name) or not self.can_start(name) for name in record.runs):
            if not self._running:
                self._next_start.set(_LOOK_AGAIN_S)
            return False
        record.generation, record.port = record.wanted, free_port()
        record.done.clear()
        return True

    def _kill_left(self, name: str, ended: LostExit) -> None:
        """Kill what a killed shim left of a replica, and report its exit then."""
        if name in self._unknown:
            return
        state, self._unknown[name] = self._state, None

        def kill(found: Sequence[MarkedProcess] | None) -> None:
            del self._unknown[name]
            if state.is_open:
                state.folder.kill(found or (), name)
                if state.record.judged.get(name) != ended.run:
                    self._on_exit(name, ended)
                self._settle()

        state.context.in_thread(state.folder.find_processes, kill, within_s=FIND_S)

    def stop(self, names: Iterable[str] | None = None) -> None:
        """Tell replicas to end, those that run; None: all."""
        for name in tuple(self._running if names is None else names):
            if name in self._running:
                self._running[name].stop()

    def kill(self) -> None:
        """Let the shims of all that run kill what they started, at once."""
        for replica in self._running.values():
            replica.kill()

    def close(self) -> None:
        """Stop watching; the processes go on."""
        for replica in self._running.values():
            replica.close()
        self._running.clear()

    def _next_run(self, name: str) -> int | None:
        """Return the number of a replica's next run, recorded and granted; None while the last one is not over."""
        record, own = self._state.record, self._state.folder.replica(name)
        # Held until the former run's grant is gone: a shim of it that comes this late finds the lock or no grant.
        with own.lock() as is_ours:
            last = record.runs.get(name, 0)
            if not is_ours or (record.judged.get(name) != last and own.exit(last) is not None):
                return None
            run = record.runs[name] = max(last, own.last_run()) + 1
            own.grant(run, ())
            self._state.folder.save(record)
        return run

    def _watch(self, replica: ReplicaProcess) -> None:
        self._running[replica.name] = replica
        replica.watch(self._on_end)

    def _on_end(self, replica: ReplicaProcess, status: int | None) -> None:
        self._running.pop(replica.name, None)
        self._inspect(replica.name, status)

    def _inspect(self, name: str, status: int | None) -> None:
        """Inspect a replica, again and again while its folder cannot be read, and let the job go on from there."""
        try:
            self.inspect(name, status)
        except OSError as error:
            _log.warning("job_id=%s replica=%s cannot be looked at: %s", self._state.record.job_id, name, error)
            self._state.later(TRY_AGAIN_S, partial(self._inspect, name, status))
            return
        self._settle()
