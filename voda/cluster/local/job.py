"""One job of the local cluster: what is asked of it is recorded, then what is missing is done.

Rules: `settle` acts on the difference between record and processes, whatever woke it, so it may be called at any
time; nothing in it waits. A worker's devices are free, and its exit is told, only once its processes are gone.
"""

import errno
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from voda.cluster.local.command import LAUNCHER, command_of
from voda.cluster.local.context import Site
from voda.cluster.local.job_endings import Endings
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.process_table import locked
from voda.cluster.local.processes.record import Record, pause_s
from voda.cluster.local.processes.replica import Replica, Unclear, found, start
from voda.cluster.local.processes.timer import Alarm
from voda.cluster.local.run_spec import Blueprint
from voda.cluster.local.worker_files import take
from voda.cluster.local.workers import TRY_AGAIN_S
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.domain.plan import StopReason
from voda.events.types import WorkerStarted

_LOOK_AGAIN_S: Final = 0.02
_LEFT_AGAIN_S: Final = 0.05
"""Nothing tells when a launcher's worker is left by its last process; all other ends are told at once."""
_log = logging.getLogger(__name__)


class LocalJob(Endings):
    """A job's record and its processes."""

    def __init__(self, site: Site, folder: Folder, record: Record) -> None:
        super().__init__(site, folder, record)
        self._next_look = Alarm(site, self.settle)
        self._unclear: dict[str, int | None] = {}
        """Replicas that are looked at again in a moment -> exit status of their shim, where it was our child."""

    # ---- what is asked

    def place(self, size: int) -> None:
        """Let the job have workers 0..size-1: start it, or grow or shrink it.

        Raises:
            ActionRefused: it is ending or has ended, or there is no room; nothing has changed then.
            ClusterUnavailable: the record cannot be written; nothing has changed then.
        """
        record = self.record
        if record.ended or record.state in ("halting", "stopping"):
            raise ActionRefused(f"job {record.job_id}: is ending; it can start again once its workers are gone")
        blueprint = self._blueprint()
        new = [index for index in range(size) if index not in record.devices]
        gone = {index for index in record.devices if index >= size} - record.leaving
        before, record.size = record.size, size
        if gone:
            self._leave(gone)
        elif not new and before != size:
            self._save()
            self._complete_if_done(blueprint)
        if new:
            self._take(blueprint, new, size if gone else before)
            self._arm_deadline()
            self._site.tell(WorkerStarted(job_id=record.job_id, workers=dict.fromkeys(new, self._site.node)))
        self.settle()

    def _take(self, blueprint: Blueprint, new: Sequence[int], before: int) -> None:
        """Take devices for new workers; where that is refused, go back to the size before."""
        try:
            take(self._site, self._folder, self.record, blueprint, new)
        except ActionRefused:
            self.record.size = before
            raise
        except ClusterUnavailable:
            self.record.size = before
            if self._folder.load() is not None:
                # Part of it may be written there: a claim on devices, and grants.
                for name in self._names_of(new):
                    self._revoke(name)
                self._save()
            raise

    def halt(self) -> None:
        """Take all workers away; the folder stays, so that the job can go on."""
        if self.record.state == "running" and not self.record.ended:
            self.record.cuts = 0
            self._end_all("halting")

    def stop(self, reason: StopReason) -> None:
        """End the job for good, and forget it once its processes are gone."""
        if self.record.state == "stopping" and not (reason == "canceled" and self.record.succeeded_at):
            return
        if self.record.succeeded_at and reason != "canceled":
            # It completed, and the other replicas are about to end by themselves.
            self.record.state = "stopping"
            self._save()
            return self.settle()
        self._end_all("stopping")

    def _end_all(self, state: str) -> None:
        record = self.record
        # Written together with who is to leave: between two files a crash would leave a job that ends and nobody goes.
        record.state = "halting" if state == "halting" else "stopping"
        self._leave(set(record.devices))
        self.settle()

    # ---- what is there

    @property
    def is_forgotten(self) -> bool:
        """Whether the job is stopped and all its processes are gone."""
        return not self._is_open

    def find(self) -> None:
        """Take over what an earlier voda left: running processes, and ends nobody has heard of."""
        record = self.record
        if record.boot_id != self._site.boot_id:
            self._survive_boot()
        elif record.leaving:
            # What the earlier voda did of it after it was recorded is not known.
            self._leave(record.leaving)
        for name in tuple(record.runs):
            self._look(name)
        if record.ended and record.wanted:
            left_s = record.succeeded_at + record.grace_s - self._site.now()
            self._site.after(min(left_s, record.grace_s), self._let_all_go)
        elif record.wanted and record.state == "running":
            self._furnish()
        self._arm_deadline()
        self.settle()

    def _survive_boot(self) -> None:
        """Let all workers go, as no process outlives its machine's boot; the plan will start the job again."""
        record = self.record
        for name, run in tuple(record.runs.items()):
            ended = self._folder.exit(name, run)
            if ended is not None and not ended.was_told and record.judged.get(name) != run:
                self._judge(name, ended)
        record.judged |= record.runs
        record.cuts = 0
        if record.state == "running" and not record.ended:
            record.state = "halting"
            self._causes = {**dict.fromkeys(record.devices, ("node_lost", None)), **self._causes}
        # Written with all else: a voda that dies before it finds the same again.
        record.boot_id = self._site.boot_id
        self._leave(record.devices)

    def close(self) -> None:
        """Look no longer; the processes go on."""
        self._is_open = False
        for replica in self._replicas.values():
            replica.close()
        self._replicas.clear()

    # ---- what is missing is done

    def settle(self) -> None:
        """Do what can be done now."""
        if not self._is_open:
            return
        try:
            self._settle()
        except OSError as error:
            _log.warning("job_id=%s cannot go on: %s; tried again in %g s", self.record.job_id, error, TRY_AGAIN_S)
            self._site.after(TRY_AGAIN_S, self.settle)

    def _settle(self) -> None:
        record = self.record
        if record.state in ("halting", "stopping") and record.wanted and not record.succeeded_at:
            self._leave(record.wanted)
        if record.state == "running" and not record.ended:
            self._start_missing()
        elif record.ended and not self._replicas and record.wanted:
            self._leave(record.wanted)
        else:
            self._stop_surplus(self._replicas)
        if record.leaving:
            self._press()
            self._release([index for index in sorted(record.leaving) if self._is_vacant(index)])
        if record.leaving:
            self._next_look.set(_LEFT_AGAIN_S)
        if not record.devices:
            self._rest()

    def _press(self) -> None:
        """Tell agents to go that were not known when they were to be told.

        An earlier voda may have died in between, and a shim may come to its lock late.
        """
        if self.record.kind != "torch":
            return
        names = self._names_of(self.record.leaving)
        for name in names:
            with suppress(Unclear):
                # It is looked at again as long as it has not left.
                self._see(name)
        self._stop_surplus(names)

    def _rest(self) -> None:
        """Note that all is gone."""
        record = self.record
        # Without workers it only waits, and its deadline waits with it.
        if record.state == "halting" or (record.state == "running" and not record.ended):
            record.state = "halted"
            self._save()
        elif record.state == "stopping" and not self._replicas:
            self._folder.forget()
            self.close()

    def _start_missing(self) -> None:
        record = self.record
        names = [name for name in self._names() if name not in self._replicas and name not in self._unclear]
        if not names:
            return
        if (pause := record.not_before - self._site.now()) > 0:
            # Not longer than a restart ever waits, should the clock have been set back.
            self._next_look.set(min(pause, pause_s(max(record.failures, record.cuts))))
            return
        for name in names:
            # An end that is learned of on the way may be the job's.
            if not record.ended:
                self._start(name)

    def _names(self) -> Sequence[str]:
        """Return the replicas that shall run."""
        record = self.record
        blueprint = self._known_blueprint()
        if not record.wanted or blueprint is None:
            return ()
        if blueprint.kind == "mpi":
            return (LAUNCHER,)
        return [blueprint.replica_of(index) for index in record.wanted if index not in record.done]

    def _start(self, name: str) -> None:
        folder, blueprint = self._folder, self._blueprint()
        if (run := self._next_run(name)) is None:
            # A shim that an earlier voda started a moment ago; it will write itself down, or go. Or somebody who only
            # looked whether there is one, and is gone without a word. Or an end that nobody has drawn conclusions from.
            self._look(name)
            self._next_look.set(_LOOK_AGAIN_S)
            return
        try:
            command = command_of(self._site, folder, blueprint, self.record, name)
            self._watch(start(folder, name, run, command))
        except ValueError as error:
            self._fail(f"{name} could not run: its command line or environment is no such thing: {error}", None)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            self._fail(f"{name} could not run: its command line or environment is too long", None)

    def _next_run(self, name: str) -> int | None:
        """Return the number of a replica's next run, recorded and granted; None where the last is not done with."""
        record, folder = self.record, self._folder
        home = folder.replicas / name
        home.mkdir(exist_ok=True)
        # Held until the former run's grant is gone: a shim of it that comes this late finds the lock or no grant.
        with locked(home / "lock") as is_ours:
            last = record.runs.get(name, 0)
            if not is_ours or (record.judged.get(name) != last and folder.exit(name, last) is not None):
                return None
            run = record.runs[name] = max(record.runs.get(name, 0), folder.last_run(name)) + 1
            folder.grant(name, run, ())
            folder.save(record)
        return run

    def _watch(self, replica: Replica) -> None:
        self._replicas[replica.name] = replica
        replica.watch(self._on_end)

    def _on_end(self, replica: Replica, status: int | None) -> None:
        self._replicas.pop(replica.name, None)
        self._learn(replica.name, status)

    def _learn(self, name: str, status: int | None) -> None:
        """Find out what became of a replica, and go on from there."""
        try:
            self._look(name, status)
        except OSError as error:
            _log.warning("job_id=%s replica=%s cannot be looked at: %s", self.record.job_id, name, error)
            self._site.after(TRY_AGAIN_S, lambda: self._learn(name, status))
            return
        self.settle()

    def _look(self, name: str, status: int | None = None) -> None:
        """Find out what became of a replica's newest run, now or a little later, and draw the conclusions."""
        try:
            self._see(name, status)
        except Unclear:
            if name not in self._unclear:
                self._site.after(_LOOK_AGAIN_S, lambda: self._learn(name, self._unclear.pop(name, None)))
                self._unclear[name] = status

    def _see(self, name: str, status: int | None = None) -> None:
        """Find out what became of a replica's newest run, and draw the conclusions.

        Raises:
            Unclear: it cannot be told yet.
        """
        if not self._is_open or name in self._replicas:
            return
        seen = found(self._folder, name, self.record.runs.get(name, 0), status)
        if isinstance(seen, Replica):
            self._watch(seen)
        elif seen is not None and self.record.judged.get(name) != seen.run:
            self._judge(name, seen)
