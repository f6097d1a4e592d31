"""Everything a user sees about each job, live and ended.

Rules: folding an event costs O(1), a plan O(jobs placed). Of ended jobs the newest 10,000 records stay; of older ones
only the index stays. No record holds a manifest: the event at `submitted_position` does.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from voda.domain.job import Phase
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.job_changes import JobPatch
from voda.projections.job_names import OF_OWNER, ArrayIndex, JobNames, full_name, name_of
from voda.projections.job_record import JobRecord, new_record

_MOST_ENDED: Final = 10_000
_MOST_ENDED_REPORTS: Final = 200_000
"""Of all ended jobs together, some 75 bytes each; those of the jobs that ended first are forgotten first."""

_State = tuple[list[JobRecord], list[str], list[str], dict[str, dict[str, int]], bytes]


class JobRegistry(Projection):
    """All jobs, for the API and the CLI; it remembers `most_ended` ended ones."""

    FORMAT: ClassVar[str] = "roster-6"

    def __init__(self, most_ended: int = _MOST_ENDED) -> None:
        self.changed_jobs: set[str] = set()
        """Jobs that the last event changed. Not part of the state."""
        self.arrays = ArrayIndex()
        self._most_ended = most_ended
        self._records: dict[str, JobRecord] = {}
        self._ended: dict[str, None] = {}
        """The ended jobs among the records, in the order of their ends."""
        self._with_reports: dict[str, None] = {}
        """Those of them that have reports, in the same order."""
        self._ended_reports = 0
        self._undecided: dict[str, dict[str, int]] = {}
        """pool -> jobs that no plan has considered yet -> position of their submission."""
        self._index = SubmissionIndex()
        self.names = JobNames()
        self._live_counts = Counter[str]()

    def apply(self, event: Event) -> None:
        self.changed_jobs.clear()
        super().apply(event)

    def job(self, job_id: str) -> JobRecord | None:
        """Return the record of a job; read-only, and changing with the log."""
        return self._records.get(job_id)

    def find(self, named: str, user: str | None = None) -> JobRecord | None:
        """Return the job that a text means to a user: the live one of that name, else its latest run (`JobNames`).

        None where there is none, and where only others have one and the user has an array of that name.
        """
        record = self._records.get(self.names.id_of(named, user)) or _of_owner(self._records, named)
        if record is None or user in (None, record.spec.user) or self.arrays.latest_of(named, user) is None:
            return record
        return None

    def jobs(self) -> Mapping[str, JobRecord]:
        """Return all records by job id, in the order of submission; read-only, and changing with the log."""
        return MappingProxyType(self._records)

    def live_count(self, user: str) -> int:
        """Return how many live jobs the user has."""
        return self._live_counts[user]

    def live_named(self, namespace: str, name: str) -> str | None:
        """Return the live job of that name; of several, the one submitted last."""
        return self.names.live(full_name(namespace, name))

    def run_with_id(self, name: str) -> JobRecord | None:
        """Return the run of another name whose id is this name, which no job has yet."""
        record = self._records.get(name)
        is_other = record is not None and name_of(record.spec) != name and self.names.latest(name) is None
        return record if is_other else None

    def submission(self, event_id: str) -> str | None:
        """Return the job that the event submitted, also if the record of that job is gone."""
        return self._index.submitted_by(event_id)

    def is_known(self, job_id: str) -> bool:
        """Return whether such a job was ever submitted, also if its record is gone."""
        return job_id in self._records or self._index.has(job_id)

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes on machines of one byte order."""
        records, ended, with_reports = list(self._records.values()), list(self._ended), list(self._with_reports)
        return msgspec.msgpack.encode((records, ended, with_reports, self._undecided, self._index.dump()))

    def load(self, state: bytes) -> None:
        records, ended, with_reports, self._undecided, index = msgspec.msgpack.decode(state, type=_State)
        self._records = {record.spec.job_id: record for record in records}
        self._ended, self._with_reports = dict.fromkeys(ended), dict.fromkeys(with_reports)
        self._ended_reports = sum(len(self._records[job_id].packed) for job_id in with_reports)
        self._index.load(index)
        self.names = JobNames()
        self._live_counts = Counter(record.spec.user for record in records if record.is_live)
        self.arrays = ArrayIndex()
        for record in records:
            self.names.add(record.spec, is_live=record.is_live)
            self.arrays.add(record)

    def _live_record(self, job_id: str) -> JobRecord | None:
        """Return the record of a live job; only exits of workers change the record of an ended one."""
        record = self._records.get(job_id)
        return record if record is not None and record.is_live else None

    def _mark(self, record: JobRecord, event: Event) -> None:
        record.revision = event.position
        self.changed_jobs.add(record.spec.job_id)

    def _add_ended(self, record: JobRecord) -> None:
        """Remember a job that has just ended, and forget those that ended long ago."""
        job_id = record.spec.job_id
        self._ended[job_id] = None
        if record.packed:
            self._with_reports[job_id] = None
            self._ended_reports += len(record.packed)
        while len(self._ended) > self._most_ended:
            self._forget(next(iter(self._ended)))
        while self._ended_reports > _MOST_ENDED_REPORTS:
            self._forget_reports(next(iter(self._with_reports)))

    def _forget(self, job_id: str) -> None:
        self._forget_reports(job_id)
        del self._ended[job_id]
        record = self._records.pop(job_id)
        self.names.forget(record.spec)
        self.arrays.forget(record)

    def _forget_reports(self, job_id: str) -> None:
        if job_id in self._with_reports:
            del self._with_reports[job_id]
            record = self._records[job_id]
            self._ended_reports -= len(record.packed)
            record.packed = []


def _of_owner(records: Mapping[str, JobRecord], named: str) -> JobRecord | None:
    """Return the job that `OWNER/ID` means."""
    owner, slash, job_id = named.rpartition(OF_OWNER)
    record = records.get(job_id) if slash else None
    return record if record is not None and record.spec.user == owner else None


@JobRegistry.folds
def _submitted(registry: JobRegistry, fact: facts.JobSubmitted, event: Event) -> None:
    job_id = fact.spec.job_id
    registry._index.add(job_id, event.event_id)
    if job_id in registry._records:
        if registry._records[job_id].is_live:
            return
        # The id of an ended job is submitted again: voda never does so, but others write logs, too.
        registry._forget(job_id)
    record = registry._records[job_id] = new_record(fact.spec, event.recorded_at, event.position)
    registry._mark(record, event)
    registry.names.add(record.spec, is_live=True)
    registry.arrays.add(record)
    registry._live_counts[fact.spec.user] += 1
    registry._undecided.setdefault(fact.spec.pool, {})[job_id] = event.position


@JobRegistry.folds
def _job_changed(registry: JobRegistry, fact: JobPatch | facts.ProgramFailed | facts.JobSilent, event: Event) -> None:
    record = registry._records.get(fact.job_id)
    if record is not None and record.change(fact, event.recorded_at):
        registry._mark(record, event)


@JobRegistry.folds
def _ended(registry: JobRegistry, fact: facts.JobEnd, event: Event) -> None:
    job_id = fact.job_id
    if (record := registry._live_record(job_id)) is None:
        return
    record.end(fact, event.recorded_at)
    registry._mark(record, event)
    registry._live_counts[record.spec.user] -= 1
    registry.names.end(record.spec)
    registry._undecided.get(record.spec.pool, {}).pop(job_id, None)
    registry._add_ended(record)


@JobRegistry.folds
def _folder_deleted(registry: JobRegistry, fact: facts.JobFolderDeleted, event: Event) -> None:
    if (record := registry._records.get(fact.job_id)) is not None and not record.is_live:
        record.folder_deleted_at, record.folder_deleted_by = event.recorded_at, fact.by
        registry._mark(record, event)


@JobRegistry.folds
def _plan_adopted(registry: JobRegistry, fact: facts.PlanAdopted, event: Event) -> None:
    def planned(job_id: str) -> JobRecord | None:
        record = registry._live_record(job_id)
        return record if record is not None and record.spec.pool == fact.pool else None

    for job_id in (*fact.released, *fact.placed, *fact.reasons):
        if (record := planned(job_id)) is not None:
            record.plan(fact, event.recorded_at)
            registry._mark(record, event)
    undecided = registry._undecided.get(fact.pool, {})
    for job_id in [job_id for job_id, position in undecided.items() if position <= fact.based_on]:
        del undecided[job_id]
        if (record := planned(job_id)) is not None and record.phase is Phase.SUBMITTED:
            record.job = replace(record.job, phase=Phase.WAITING)
            registry._mark(record, event)


_TAIL: Final = 8_192
"""Newest digests in a dict, which is fast to add to, and large."""

_Tier = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]
"""Digests in ascending order, and the number of each one's job."""


class SubmissionIndex:
    """Jobs in the order of their submissions, never forgotten, with the id of the submitting event: 55 bytes per job.

    It holds 64-bit digests of names and event ids, so that a million jobs fit into 55 MB; a plain dict would take
    150 MB more. Among a million jobs, a new id counts as an old one with a probability of 1 in 10^13.
    """

    def __init__(self) -> None:
        self._tail: dict[int, int] = {}
        self._tiers: list[_Tier] = []
        """From the oldest and largest to the newest; each at least twice as large as the next one."""
        self._names = bytearray()
        self._ends = array("Q")
        """Where each job's id ends in `_names`."""

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, job_id: str, event_id: str) -> None:
        """Add a job and the id of the event that submitted it. Costs O(log jobs), amortised."""
        number = len(self._ends)
        self._names += job_id.encode()
        self._ends.append(len(self._names))
        self._add_digest(_digest("job", job_id), number)
        self._add_digest(_digest("event", event_id), number)

    def has(self, job_id: str) -> bool:
        return self._number(_digest("job", job_id)) is not None

    def submitted_by(self, event_id: str) -> str | None:
        """Return the job that the event submitted."""
        number = self._number(_digest("event", event_id))
        if number is None:
            return None
        begin = self._ends[number - 1] if number else 0
        return self._names[begin : self._ends[number]].decode()

    def dump(self) -> bytes:
        tiers = [(keys.tobytes(), numbers.tobytes()) for keys, numbers in self._tiers]
        return msgspec.msgpack.encode((self._tail, tiers, bytes(self._names), self._ends.tobytes()))

    def load(self, state: bytes) -> None:
        kind = tuple[dict[int, int], list[tuple[bytes, bytes]], bytes, bytes]
        self._tail, tiers, names, ends = msgspec.msgpack.decode(state, type=kind)
        self._tiers = [(np.frombuffer(keys, np.uint64), np.frombuffer(of, np.uint32)) for keys, of in tiers]
        self._names, self._ends = bytearray(names), array("Q", ends)

    def _add_digest(self, digest: int, number: int) -> None:
        self._tail[digest] = number
        if len(self._tail) < _TAIL:
            return
        tier = np.array(list(self._tail), np.uint64), np.array(list(self._tail.values()), np.uint32)
        self._tail = {}
        self._tiers.append(_sorted(*tier))
        while len(self._tiers) > 1 and len(self._tiers[-2][0]) < 2 * len(self._tiers[-1][0]):
            newer, older = self._tiers.pop(), self._tiers.pop()
            self._tiers.append(
                _sorted(np.concatenate((older[0], newer[0])), np.concatenate((older[1], newer[1]))),
            )

    def _number(self, digest: int) -> int | None:
        if (number := self._tail.get(digest)) is not None:
            return number
        for keys, numbers in reversed(self._tiers):
            # If an id was submitted twice, the last one counts.
            at = int(np.searchsorted(keys, np.uint64(digest), side="right")) - 1
            if at >= 0 and int(keys[at]) == digest:
                return int(numbers[at])
        return None


def _digest(kind: str, name: str) -> int:
    """Python's own hash differs from one process to the next."""
    return int.from_bytes(blake2b(f"{kind}:{name}".encode(), digest_size=8).digest())


def _sorted(keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint32]) -> _Tier:
    order = np.argsort(keys, kind="stable")
    return keys[order], numbers[order]
