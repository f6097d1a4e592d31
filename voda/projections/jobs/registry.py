"""Everything a user sees about each job, live and ended.

Rules: folding an event costs O(1), a plan O(jobs placed). Of ended jobs the newest records stay (`EndedJobs`), of older
ones only the index. No record holds a manifest or reports: the log does, from `submitted_position` on.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
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
from voda.events.message_pack import append, append_array, append_map
from voda.projections.base import Projection, considered
from voda.projections.jobs.changes import JobPatch
from voda.projections.jobs.names import OF_OWNER, ArrayIndex, JobNames, full_name, name_of
from voda.projections.jobs.record import JobRecord, new_record

_MOST_ENDED: Final = 10_000
_MOST_ENDED_BYTES: Final = 32 * 1024 * 1024
"""Of the records of ended jobs, encoded; in memory they take some three times as much."""

_State = tuple[list[JobRecord], dict[str, dict[str, int]], dict[str, dict[str, int]], bytes]
_ARRAY_OF_FOUR: Final = b"\x94"


class JobRegistry(Projection):
    """All jobs, for the API and the CLI; it remembers `most_ended` ended ones, of `most_ended_bytes` in all."""

    FORMAT: ClassVar[str] = "roster-12"

    def __init__(self, most_ended: int = _MOST_ENDED, most_ended_bytes: int = _MOST_ENDED_BYTES) -> None:
        self.changed_jobs: set[str] = set()
        """Jobs that the last event changed. Not part of the state."""
        self.arrays = ArrayIndex()
        self._records: dict[str, JobRecord] = {}
        self._ended = EndedJobs(most_ended, most_ended_bytes)
        """The ended jobs among the records."""
        self._undecided: dict[str, dict[str, int]] = {}
        """pool -> jobs that no plan has considered yet -> position of their submission."""
        self._index = SubmissionIndex()
        self.names = JobNames()
        self.live = LiveTotals()

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
        buffer = bytearray(_ARRAY_OF_FOUR)
        append_array(buffer, self._records.values())
        append_map(buffer, self._ended.dump())
        append_map(buffer, self._undecided)
        append(buffer, self._index.dump())
        return bytes(buffer)

    def load(self, state: bytes) -> None:
        records, ended, self._undecided, index = msgspec.msgpack.decode(state, type=_State)
        self._records = {record.spec.job_id: record for record in records}
        self._ended.load(ended)
        self._index.load(index)
        self.names = JobNames()
        self.live = LiveTotals()
        self.arrays = ArrayIndex()
        for record in records:
            if record.is_live:
                self.live.add(record.spec.user, record.submitted_bytes)
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
        self._ended.add(record.spec.user, record.spec.job_id, len(msgspec.msgpack.encode(record)))
        for job_id in self._ended.surplus():
            self._forget(job_id)

    def _forget(self, job_id: str) -> None:
        record = self._records.pop(job_id)
        self._ended.remove(record.spec.user, job_id)
        self.names.forget(record.spec)
        self.arrays.forget(record)


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
    registry.live.add(fact.spec.user, record.submitted_bytes)
    registry._undecided.setdefault(fact.spec.pool, {})[job_id] = event.position


@JobRegistry.folds
def _job_changed(registry: JobRegistry, fact: JobPatch | facts.ProgramFailed | facts.JobSilent, event: Event) -> None:
    record = registry._records.get(fact.job_id)
    had = record.spec.needs if record is not None else None
    if record is not None and record.change(fact, event.recorded_at, event.position):
        registry._mark(record, event)
        if record.spec.needs != had and record.is_live:
            more = len(msgspec.json.encode(record.spec.needs)) - len(msgspec.json.encode(had))
            record.submitted_bytes += more
            registry.live.add(record.spec.user, more, jobs=0)


@JobRegistry.folds
def _ended(registry: JobRegistry, fact: facts.JobEnd, event: Event) -> None:
    job_id = fact.job_id
    if (record := registry._live_record(job_id)) is None:
        return
    record.end(fact, event.recorded_at)
    registry._mark(record, event)
    registry.live.remove(record.spec.user, record.submitted_bytes)
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
    for job_id in considered(fact, undecided):
        del undecided[job_id]
        if (record := planned(job_id)) is not None and record.phase is Phase.SUBMITTED:
            record.job = replace(record.job, phase=Phase.WAITING)
            registry._mark(record, event)


class LiveTotals:
    """How many live jobs each user has, and of how many bytes (`submitted_bytes`)."""

    def __init__(self) -> None:
        self._jobs = Counter[str]()
        self._bytes = Counter[str]()

    def add(self, user: str, size: int, jobs: int = 1) -> None:
        """Add jobs of `size` bytes in all."""
        self._jobs[user] += jobs
        self._bytes[user] += size

    def remove(self, user: str, size: int, jobs: int = 1) -> None:
        """Remove jobs of `size` bytes in all."""
        self.add(user, -size, -jobs)
        if not self._jobs[user]:
            del self._jobs[user], self._bytes[user]

    def jobs(self, user: str) -> int:
        return self._jobs[user]

    def bytes(self, user: str) -> int:
        return self._bytes[user]

    def users(self) -> Mapping[str, int]:
        """Return the bytes of each user who has live jobs, read-only and changing with them."""
        return self._bytes


class EndedJobs:
    """The ended jobs that are remembered, with the bytes of their records.

    Where they are too many or too large, the user who has most of them loses the one that ended first, so that no
    user's jobs are forgotten for another's.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._of: dict[str, dict[str, int]] = {}
        """User -> job -> bytes, in the order of their ends."""
        self._bytes: dict[str, int] = {}
        """User -> of all of these jobs."""

    def add(self, user: str, job_id: str, size: int) -> None:
        """Add a job that has just ended."""
        self._of.setdefault(user, {})[job_id] = size
        self._bytes[user] = self._bytes.get(user, 0) + size

    def remove(self, user: str, job_id: str) -> None:
        jobs = self._of[user]
        self._bytes[user] -= jobs.pop(job_id)
        if not jobs:
            del self._of[user], self._bytes[user]

    def surplus(self) -> Iterator[str]:
        """Yield the jobs to be forgotten, one after the other; each is to be removed before the next."""
        while sum(map(len, self._of.values())) > self._most:
            user = max(self._of, key=lambda user: len(self._of[user]))
            yield next(iter(self._of[user]))
        while sum(self._bytes.values()) > self._most_bytes:
            # The only job of a user, however large its record, has perhaps just ended.
            several = [user for user, jobs in self._of.items() if len(jobs) > 1]
            yield next(iter(self._of[max(several or self._bytes, key=self._bytes.__getitem__)]))

    def dump(self) -> Mapping[str, Mapping[str, int]]:
        return self._of

    def load(self, state: dict[str, dict[str, int]]) -> None:
        self._of = state
        self._bytes = {user: sum(jobs.values()) for user, jobs in state.items()}


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
