"""The workers of one job: telling them to go, and freeing what they held once they are gone.

Rule: a worker's devices are free, and its exit is told, only once no process of it is left.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from voda.cluster.local.command import LAUNCHER
from voda.cluster.local.context import Site
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.process_table import kill_marked
from voda.cluster.local.processes.process_usage import home_of, is_at_work, is_deserted, is_used
from voda.cluster.local.processes.record import Record
from voda.cluster.local.processes.replica import Replica
from voda.cluster.local.run_spec import Blueprint
from voda.cluster.local.worker_files import furnish
from voda.domain.errors import ActionRefused
from voda.events.types import ExitCause, WorkerExited

TRY_AGAIN_S: Final = 1.0
SPARE_S: Final = 5.0
"""On top of a job's grace: what an elastic launcher needs to notice that a worker is to go."""
FORGIVEN_S: Final = 10.0
"""A launcher that fails so soon after a worker was taken from it did not fail by itself."""
_log = logging.getLogger(__name__)


class Workers:
    """What a job holds; LocalJob says when to take and when to let go."""

    def __init__(self, site: Site, folder: Folder, record: Record) -> None:
        self.record = record
        self._site = site
        self._folder = folder
        self._replicas: dict[str, Replica] = {}
        """Shims at work."""
        self._leave_by: dict[int, float] = {}
        """Loop time at which a leaving worker of a launcher is killed."""
        self._causes: dict[int, tuple[ExitCause, int | None]] = {}
        self._is_open = True

    def _save(self, *, durably: bool = False) -> None:
        """Write the record, if not now then a little later: what it lacks after a crash is found out again."""
        try:
            self._folder.save(self.record, durably=durably)
        except OSError as error:
            _log.warning("job_id=%s its record cannot be written: %s", self.record.job_id, error)
            self._site.after(TRY_AGAIN_S, self._save_again)

    def _save_again(self) -> None:
        if self._is_open:
            self._save()

    def _furnish(self) -> None:
        """Write the files of the workers anew: a crash may have come between the record and them."""
        blueprint = self._known_blueprint()
        if blueprint is None or not self._is_open:
            return
        try:
            furnish(self._site, self._folder, self.record, blueprint)
        except OSError as error:
            _log.warning("job_id=%s its folder cannot be written: %s", self.record.job_id, error)
            self._site.after(TRY_AGAIN_S, self._furnish)

    def _leave(self, indices: Iterable[int]) -> None:
        """Tell workers to go."""
        record = self.record
        gone = set(indices)
        record.leaving |= gone
        self._save()
        names = self._names_of(gone)
        for name in names if record.wanted else (*names, LAUNCHER):
            self._revoke(name)
        for index in gone:
            self._leave_by.setdefault(index, self._now() + record.grace_s + SPARE_S)
        if record.kind == "torch":
            self._stop_surplus(names)
        elif record.wanted:
            self._furnish()

    def _revoke(self, name: str) -> None:
        try:
            self._folder.revoke(name)
        except OSError as error:
            # It is told to go all the same, and whoever comes in later is killed with the rest.
            _log.warning("job_id=%s replica=%s its grant stays: %s", self.record.job_id, name, error)

    def _stop_surplus(self, names: Iterable[str]) -> None:
        if self.record.succeeded_at and not self.record.leaving:
            return
        for name in tuple(names):
            if name in self._replicas:
                self._replicas[name].stop()

    def _is_vacant(self, index: int) -> bool:
        """Say whether no process of a leaving worker is left."""
        record, folder = self.record, self._folder
        if record.kind == "torch":
            return not any(name in self._replicas or is_at_work(folder, name) for name in self._names_of([index]))
        if record.state != "running" or record.ended:
            return LAUNCHER not in self._replicas and is_deserted(folder)
        if not is_used(self._site, folder, record, index):
            return True
        if self._now() >= self._leave_by.get(index, 0.0):
            self._forgive()
            kill_marked(home_of(folder, index))
        return False

    def _forgive(self) -> None:
        """Note, before a worker is killed, that its launcher is not to be blamed for what comes of it."""
        until = self._site.now() + FORGIVEN_S
        if until > self.record.forgiven_until + 1.0:
            self.record.forgiven_until = until
            self._save()

    def _release(self, indices: Sequence[int]) -> None:
        """Free the devices of workers that are gone, and tell."""
        record = self.record
        by_cause: dict[tuple[ExitCause, int | None], list[int]] = {}
        for index in indices:
            self._site.slots.release(record.job_id, index, record.devices.pop(index))
            record.leaving.discard(index)
            self._leave_by.pop(index, None)
            by_cause.setdefault(self._causes.pop(index, (record.cause, None)), []).append(index)
        if indices:
            self._save()
        for (cause, code), gone in by_cause.items():
            exited = WorkerExited(job_id=record.job_id, workers=tuple(gone), cause=cause, exit_code=code)
            self._site.tell(exited)

    def _names_of(self, indices: Iterable[int]) -> Sequence[str]:
        """Return the replicas that these workers are; all there are where the log does not know the job any more."""
        if self.record.kind == "mpi":
            return [f"worker-{index}" for index in indices]
        blueprint = self._known_blueprint()
        return [blueprint.replica_of(index) for index in indices] if blueprint else [*self.record.runs]

    def _blueprint(self) -> Blueprint:
        return self._site.blueprint(self.record.job_id)

    def _known_blueprint(self) -> Blueprint | None:
        try:
            return self._blueprint()
        except ActionRefused:
            return None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
