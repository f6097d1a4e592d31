"""What follows for one job from the ends of its programs, and from its deadline.

Rules: an end is judged once, and what it came to is recorded before anybody is told; nothing in it waits.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection

from voda.cluster.local.command import LAUNCHER
from voda.cluster.local.context import Site
from voda.cluster.local.exit_policy import told, verdict
from voda.cluster.local.processes.folder import Folder
from voda.cluster.local.processes.record import Exit, Record
from voda.cluster.local.processes.timer import Alarm
from voda.cluster.local.run_spec import Blueprint
from voda.cluster.local.worker_files import last_lines
from voda.cluster.local.workers import FORGIVEN_S, Workers
from voda.events.types import JobCompleted, JobFailed

_log = logging.getLogger(__name__)


class Endings(Workers, ABC):
    """Judges; LocalJob finds out what ended, and starts what is to run."""

    def __init__(self, site: Site, folder: Folder, record: Record) -> None:
        super().__init__(site, folder, record)
        self._deadline = Alarm(site, self._check_deadline)

    @abstractmethod
    def settle(self) -> None:
        """Do what can be done now."""

    def _judge(self, name: str, ended: Exit) -> None:
        """Draw the conclusions from the end of a replica's program."""
        record = self.record
        record.judged[name] = ended.run
        blueprint = self._known_blueprint()
        index = None if blueprint is None or name == LAUNCHER else self._index(blueprint, name)
        if record.ended or record.state != "running" or blueprint is None or (index in record.leaving):
            self._save()
            return
        expected = {blueprint.replica_of(other) for other in record.expected if other not in record.done}
        others = sorted(expected - {name})
        judged = verdict(blueprint, name, ended, failures=record.failures, unfinished=others)
        forgiven_s = record.forgiven_until - self._site.now()
        if name == LAUNCHER and 0 < forgiven_s <= FORGIVEN_S and not ended.problem:
            # Open MPI's mpirun even ends well when one of its daemons is killed.
            self._save()
        elif ended.was_told:
            # By nobody here: a machine that shuts down tells its processes to end. Even one that ends well is not done.
            self._cut_off(name, index, ended)
        elif judged.outcome == "completed":
            self._complete(others)
        elif judged.outcome == "failed":
            printed = last_lines(self._folder, name, ended.run)
            self._fail(f"{judged.reason}; its last lines: {printed}" if printed else judged.reason, ended.exit_code)
        elif judged.outcome == "done" and index is not None:
            record.done.add(index)
            self._save()
        else:
            self._again(name, index, ended)

    def _complete_if_done(self, blueprint: Blueprint) -> None:
        """Complete a job that waited for workers only which it is not to have any more."""
        record = self.record
        is_for_all = blueprint.kind == "torch" and not blueprint.has_master
        is_at_rest = not self._replicas and not record.leaving and not record.ended and record.state == "running"
        if is_for_all and is_at_rest and record.done and record.done.issuperset(record.expected):
            self._complete(())

    def _complete(self, others: Collection[str]) -> None:
        record = self.record
        record.ended = "completed"
        record.succeeded_at = self._site.now()
        self._save(durably=True)
        self._site.tell(JobCompleted(job_id=record.job_id))
        alive = [name for name in others if name in self._replicas]
        if alive and self.record.grace_s > 0:
            # The others are about to end by themselves, perhaps still writing what they learned.
            self._site.after(self.record.grace_s, self._let_all_go)
        else:
            self._let_all_go()

    def _fail(self, reason: str, exit_code: int | None) -> None:
        record = self.record
        record.ended, record.reason = "failed", reason
        self._causes.update(dict.fromkeys(record.devices, ("failed", exit_code)))
        self._save(durably=True)
        self._site.tell(JobFailed(job_id=record.job_id, reason=reason))
        self._let_all_go()

    def _again(self, name: str, index: int | None, ended: Exit) -> None:
        """Have a failed replica started again after a pause."""
        record = self.record
        record.count_failure(self._site.now())
        if index is not None:
            record.leaving.add(index)
            self._causes[index] = ("failed", ended.exit_code)
        self._save()
        _log.warning("job_id=%s %s %s; failures=%d", record.job_id, name, told(ended), record.failures)

    def _cut_off(self, name: str, index: int | None, ended: Exit) -> None:
        """Have a replica that others told to end started again after a pause; it did not fail."""
        record = self.record
        if index is not None:
            record.leaving.add(index)
            self._causes[index] = ("evicted", ended.exit_code)
        if index is not None or name == LAUNCHER:
            record.count_cut(self._site.now())
            _log.warning("job_id=%s %s was told to end, not by voda; it is started again", record.job_id, name)
        self._save()

    def _let_all_go(self) -> None:
        if self._is_open:
            self._leave(set(self.record.devices))
            self.settle()

    def _index(self, blueprint: Blueprint, name: str) -> int | None:
        return next((index for index in self.record.devices if blueprint.replica_of(index) == name), None)

    # ---- the deadline

    def _arm_deadline(self) -> None:
        blueprint = self._known_blueprint()
        if blueprint is None or blueprint.policy.active_deadline_s is None or self.record.state != "running":
            return
        due = self.record.resumed_at + blueprint.policy.active_deadline_s
        self._deadline.set(due - self._site.now())

    def _check_deadline(self) -> None:
        record, blueprint = self.record, self._known_blueprint()
        if not self._is_open or blueprint is None or record.ended or record.state != "running":
            return
        limit_s = blueprint.policy.active_deadline_s
        if limit_s is not None and self._site.now() >= record.resumed_at + limit_s:
            self._fail(f"was active for more than {limit_s:g} s (activeDeadlineSeconds)", None)
        else:
            # It was halted meanwhile and counts anew, or the timer came a moment early.
            self._arm_deadline()
