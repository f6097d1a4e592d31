"""Submits a job: parses the manifest, checks the pool and the user's limit, and records the job under a free id.

Rules: a name belongs to one live job at a time; an id belongs to one job for ever, which the store enforces (a job's
stream begins at version 0). A second request with the same idempotency key gets the job of the first one, even if the
first answer was lost: the key is the id of the event. An object that is in the cluster already is its own key, and may
share its name with a job whose object it follows.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from voda.application.backend import Backend
from voda.auth.callers import Caller
from voda.domain.errors import AlreadyExists, InvalidField, InvalidInput, TooManyJobs, VersionConflict, WrongState
from voda.domain.job import JobSpec, validated
from voda.events.envelope import Fact
from voda.events.types import JobRegistered, JobSubmitted
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ParsedManifest, parse
from voda.projections.job_names import full_name
from voda.projections.job_record import JobRecord, new_record

_MOST_TRIES: Final = 20
"""Attempts to find a free id; each is lost to another submit of the same name at the same moment."""
_MOST_KEY: Final = 256


class SubmitOutcome(Struct, frozen=True):
    """The job that a request submitted, or that was there before."""

    record: JobRecord
    is_new: bool
    """Whether this request submitted it; False: it was there before, or this is a dry run."""
    warnings: tuple[FieldWarning, ...]


class JobSubmitter:
    """Submits jobs and adopts objects of the cluster, each once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._job_registry = backend.view.job_registry
        self._under_way: dict[str, asyncio.Event] = {}
        """Event id -> set when the request that has it ends, well or not."""
        self._coming: Counter[str] = Counter()
        """User -> jobs that are being recorded."""

    async def submit(
        self, manifest: Mapping[str, Any], caller: Caller, *, key: str = "", is_dry_run: bool = False
    ) -> SubmitOutcome:
        """Submit a job, which the caller owns, or with `is_dry_run` check all that is checked and record nothing.

        A `key` is one that the caller chose for this job.

        Raises:
            InvalidInput: the manifest, the pool or the key is wrong.
            AlreadyExists: a live job has that name.
            TooManyJobs: the user has too many live jobs.
            TransientError: the accounts of this machine cannot be read at this moment.
            StoreUnavailable: try again with the same key.
            StoreNotWritable: the log cannot be written.
        """
        spec, warnings = self._parse_and_check(manifest, caller)
        if self._backend.local_users is not None:
            # Refused here where its owner has no account.
            await self._backend.local_users.job_account(caller.user)
        if is_dry_run:
            self._refuse_too_many(caller)
            record = new_record(self._identified(spec), self._backend.clock.now(), 0)
            return SubmitOutcome(record, False, warnings)
        return SubmitOutcome(*await self._submit(spec, caller, key), warnings)

    async def rerun(self, record: JobRecord, caller: Caller, *, key: str = "") -> SubmitOutcome:
        """Submit the manifest of a job again: the next run of its name, which the same user owns.

        Raises WrongState where it has no manifest, and the errors of `submit`.
        """
        events = await self._backend.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest is None:
            raise WrongState(f"job {record.spec.job_id} was submitted without a manifest: it cannot run again")
        spec, warnings = self._parse_and_check(fact.spec.manifest, replace(caller, user=record.spec.user))
        return SubmitOutcome(*await self._submit(spec, caller, f"rerun {key}" if key else ""), warnings)

    def check(self, manifest: Mapping[str, Any], caller: Caller) -> Sequence[FieldWarning]:
        """Return the parts of a manifest that `adopt` would not honour; raises what `adopt` would."""
        _, warnings = self._parse_and_check(manifest, caller)
        self._refuse_too_many(caller)
        return warnings

    async def adopt(self, manifest: Mapping[str, Any], caller: Caller, *, uid: str) -> SubmitOutcome:
        """Submit the job of an object that is in the cluster, and register the object, in one append.

        An object (`uid`) that was adopted before leads to its job. Raises the errors of `submit`.
        """
        spec, warnings = self._parse_and_check(manifest, caller)
        event_id = adoption_id(uid)
        await self._none_under_way(event_id)
        if (job_id := self._job_registry.submission(event_id)) is not None:
            if (record := self._job_registry.job(job_id)) is None:
                raise AlreadyExists(f"object {uid} was that of job {job_id}, which ended long ago")
            return SubmitOutcome(record, False, warnings)
        with self._exclusive(event_id, caller):
            return SubmitOutcome(await self._record(spec, event_id, actor=spec.user, uid=uid), True, warnings)

    async def _submit(self, spec: JobSpec, caller: Caller, key: str) -> tuple[JobRecord, bool]:
        """Return the job, and whether this request submitted it."""
        event_id = _event_id(caller.user, key) if key else self._backend.clock.new_id()
        await self._none_under_way(event_id)
        if key and (job_id := self._job_registry.submission(event_id)) is not None:
            return await self._earlier_job(job_id, spec, key), False
        with self._exclusive(event_id, caller):
            return await self._record(spec, event_id, actor=caller.user), True

    async def _none_under_way(self, event_id: str) -> None:
        while (other := self._under_way.get(event_id)) is not None:
            await other.wait()

    def _parse_and_check(self, manifest: Mapping[str, Any], caller: Caller) -> tuple[JobSpec, tuple[FieldWarning, ...]]:
        """Return the job that a manifest describes, without its id, and the parts that are not honoured."""
        parsed = parse(manifest, default_pool=self._backend.pools[0], pool_label=self._backend.pool_label)
        spec = replace(parsed.spec, user=caller.user)
        self._refuse_unknown_pool(spec)
        return spec, tuple(self._warnings(parsed))

    async def _record(self, spec: JobSpec, event_id: str, *, actor: str, uid: str = "") -> JobRecord:
        """Append the submission under the first free id, with the object that it comes from, if any."""
        store, view, clock = self._backend.store, self._backend.view, self._backend.clock
        for _ in range(_MOST_TRIES):
            identified = self._identified(spec, may_share_name=bool(uid))
            now = clock.now()
            submit = JobSubmitted(spec=identified)
            facts = [Fact(data=submit, event_id=event_id, recorded_at=now, actor=actor)]
            if uid:
                register = JobRegistered(job_id=identified.job_id, uid=uid, kind=spec.kind)
                facts.append(Fact(data=register, event_id=registration_id(uid), recorded_at=now, actor=actor))
            try:
                position = await store.append(submit.stream, 0, facts)
            except VersionConflict:
                # Another request took the id: read what it wrote before the next attempt.
                await view.wait_for(await store.position())
                continue
            await view.wait_for(position)
            job_id = self._job_registry.submission(event_id)
            assert job_id is not None, "a submission that was appended and read back is known"
            record = self._job_registry.job(job_id)
            assert record is not None, "a job that has just begun is not forgotten"
            return record
        raise AlreadyExists(f"job {spec.name}: {_MOST_TRIES} ids in a row were taken by others; submit it again")

    async def _earlier_job(self, job_id: str, spec: JobSpec, key: str) -> JobRecord:
        """Return the job that was submitted with the key, if its manifest was the same."""
        record = self._job_registry.job(job_id)
        if record is None:
            raise AlreadyExists(
                f"Idempotency-Key {key!r} was used for job {job_id}, which ended long ago: use a new one"
            )
        events = await self._backend.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest != spec.manifest:
            raise InvalidInput(
                f"Idempotency-Key {key!r} was used for job {job_id} with another manifest: use a new key for a new job"
            )
        return record

    @contextmanager
    def _exclusive(self, event_id: str, caller: Caller) -> Iterator[None]:
        """Let other requests with the same event wait, and count the job as the user's meanwhile."""
        self._refuse_too_many(caller)
        done = self._under_way[event_id] = asyncio.Event()
        self._coming[caller.user] += 1
        try:
            yield
        finally:
            del self._under_way[event_id]
            done.set()
            self._coming[caller.user] -= 1
            if not self._coming[caller.user]:
                del self._coming[caller.user]

    def _identified(self, spec: JobSpec, *, may_share_name: bool = False) -> JobSpec:
        base = full_name(spec.namespace, spec.name)
        if not may_share_name and (live := self._job_registry.live_named(spec.namespace, spec.name)) is not None:
            raise AlreadyExists(
                f"job {live} has the name {spec.name!r} and is live: delete it or wait for its end, or choose another"
                " name"
            )
        return validated(replace(spec, job_id=self._free(base)))

    def _free(self, base: str) -> str:
        """Return the base, else the base with a number, that no job has had; O(log n) lookups."""
        is_known = self._job_registry.is_known
        if not is_known(base):
            return base
        free = 2
        while is_known(f"{base}-{free}"):
            free *= 2
        numbers = range(free // 2 + 1, free)
        first = bisect_left(numbers, True, key=lambda number: not is_known(f"{base}-{number}"))
        return f"{base}-{numbers.start + first}"

    def _refuse_unknown_pool(self, spec: JobSpec) -> None:
        if spec.pool not in self._backend.pools:
            raise InvalidField(
                "metadata.annotations[voda.dev/pool]",
                f"metadata.annotations[voda.dev/pool]: there is no pool {spec.pool[:80]!r}, expected one of"
                f" {', '.join(self._backend.pools)}",
            )

    def _refuse_too_many(self, caller: Caller) -> None:
        most = self._backend.limits.jobs_per_user
        live = self._job_registry.live_count(caller.user) + self._coming[caller.user]
        if caller.role != "admin" and live >= most:
            raise TooManyJobs(
                f"user {caller.user} has {live} live jobs, and {most} is the most: wait until some have ended"
            )

    def _warnings(self, parsed: ParsedManifest) -> Iterator[FieldWarning]:
        """Yield the fields that have no effect, each once, and whether the job has to wait for nodes."""
        spec = parsed.spec
        by_field: dict[str, FieldWarning] = {}
        for warning in (*self._backend.warnings(parsed), *parsed.warnings):
            by_field.setdefault(warning.field, warning)
        yield from by_field.values()
        # Sums over the nodes alone: a submit costs the same however many jobs there are.
        nodes = self._backend.view.live.cluster.nodes(spec.pool).values()
        room = sum(node.usable_gpus // spec.gpus_per_replica for node in nodes)
        if nodes and room < spec.min_replicas:
            message = _too_big(spec, room, sum(node.usable_gpus for node in nodes))
            yield FieldWarning(field=parsed.job.size_path, message=message)


def adoption_id(uid: str) -> str:
    """Return the id of the event that submits the job of an object, whatever its user."""
    return f"adopt-{uid}"


def registration_id(uid: str) -> str:
    """Return the id of the event that ties an object to its job."""
    return f"register-{uid}"


def _event_id(user: str, key: str) -> str:
    """Return the id of the event that submits the job of a key; each user has keys of their own."""
    if len(key) > _MOST_KEY or not key.isprintable():
        raise InvalidField("Idempotency-Key", f"Idempotency-Key: expected 1 to {_MOST_KEY} printable characters")
    return "submit-" + sha256(f"{user}\n{key}".encode()).hexdigest()[:32]


def _too_big(spec: JobSpec, room: int, gpus: int) -> str:
    each = "" if spec.gpus_per_replica == 1 else f" of {spec.gpus_per_replica} GPUs each"
    workers = "1 worker" if spec.min_replicas == 1 else f"{spec.min_replicas} workers"
    return (
        f"it waits until nodes join or its minimum is less: it needs {workers}{each}, and pool {spec.pool} has room for"
        f" {room} when empty ({gpus} GPUs in all)"
    )
