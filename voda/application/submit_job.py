"""Submits a job: parses the manifest, checks the pool and the user's limit, and records the job under a free id.

Rules: a name belongs to one live job at a time; an id belongs to one job for ever, which the store enforces (a job's
stream begins at version 0). A second request with the same idempotency key gets the job of the first one, even if the
first answer was lost: the key is the id of the event. An object that is in the cluster already is its own key, and may
share its name with a job whose object it follows. All tasks of an array are recorded in one append, or none.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.application.job_ids import JobIds
from voda.application.job_rules import ARRAY_FIELD, JobRules, LiveJobLimits, pool_warnings, refuse_beyond_bounds
from voda.application.journal import Journal
from voda.application.virtual_clusters.membership import PRIORITY_FIELD, in_virtual_cluster
from voda.auth.callers import Caller
from voda.auth.write_quota import payer, size_of
from voda.domain.errors import (
    AlreadyExists,
    InvalidField,
    InvalidInput,
    NotAllowed,
    VersionConflict,
    WrongState,
)
from voda.domain.job import JobSpec
from voda.events.envelope import Fact
from voda.events.types import JobRegistered, JobSubmitted
from voda.kinds.base import FieldWarning
from voda.log.append_plan import Append
from voda.manifests.arrays import ARRAY_NAME, ARRAY_TASK, task_specs, without_array
from voda.manifests.parse import ANY_POOL, ParsedManifest, parse
from voda.programs.program_manifest import with_kept_script
from voda.projections.jobs.record import JobRecord, new_record

_ENDING_S: Final = 5.0
"""In which the processes of a job that has ended are gone, in most cases."""
_MOST_TRIES: Final = 20
"""Attempts to find a free id; each is lost to another submit of the same name at the same moment."""
_MOST_KEY: Final = 256
_MOST_ARRAY_BYTES: Final = 32 * 1024 * 1024
"""Of all encoded tasks of an array together, which are one append."""


class SubmitOutcome(Struct, frozen=True):
    """The job that a request submitted, or that was there before."""

    record: JobRecord
    """Of an array, its lowest task."""
    is_new: bool
    """Whether this request submitted it; False: it was there before, or this is a dry run."""
    warnings: tuple[FieldWarning, ...]
    tasks: int = 1
    """Jobs that the manifest stands for."""


class CheckedManifest(NamedTuple):
    """A manifest that was read, and checked against the pools."""

    parsed: ParsedManifest
    spec: JobSpec
    """Without its id."""
    warnings: tuple[FieldWarning, ...]
    """The parts that are not honoured."""


class JobSubmitter:
    """Submits jobs and adopts objects of the cluster, each once."""

    def __init__(self, journal: Journal, rules: JobRules) -> None:
        self._journal = journal
        self._rules = rules
        self._job_registry = journal.view.job_registry
        self._ids = JobIds(journal.view)
        self._under_way: dict[str, asyncio.Event] = {}
        """Event id -> set when the request that has it ends, well or not."""
        self._limits = LiveJobLimits(journal.view.job_registry, rules)
        self._joining = asyncio.Lock()
        """Held while a single task of an array is recorded: the first one names the array."""

    async def submit(
        self, manifest: Mapping[str, Any], caller: Caller, *, key: str = "", is_dry_run: bool = False
    ) -> SubmitOutcome:
        """Submit a job, which the caller owns, or with `is_dry_run` check all that is checked and record nothing.

        A `key` is one that the caller chose for this job.

        Raises:
            InvalidInput: the manifest, the pool, the key or a job that it comes after is wrong.
            NotAllowed: the user is no member of the virtual cluster, or lacks rights in the cluster.
            AlreadyExists: a live job has that name.
            TooManyJobs: the user has too many live jobs, or too large ones.
            QuotaExceeded: the user has written as much to the log as one may.
            TransientError: the accounts of this machine cannot be read at this moment.
            StoreUnavailable: try again with the same key.
            StoreNotWritable: the log cannot be written.
        """
        parsed, spec, warnings = self.read(manifest, caller)
        await self._rules.account(spec.user)
        await self._rules.refuse_unusable(parsed)
        await self._rules.refuse_forbidden(parsed, caller)
        specs = [spec] if parsed.array is None else list(task_specs(spec, parsed.array))
        if is_dry_run:
            if key and (job_id := self._job_registry.submission(_event_id("submit", caller.user, key))) is not None:
                return SubmitOutcome(await self._earlier_job(job_id, spec, key), False, warnings, len(specs))
            self._limits.refuse_beyond(caller, specs)
            record = new_record(self._identified(specs, parsed)[0], self._journal.clock.now(), 0)
            return SubmitOutcome(record, False, warnings, len(specs))
        event_id = _event_id("submit", caller.user, key) if key else self._journal.clock.new_id()
        return SubmitOutcome(*await self._submit(specs, parsed, caller, key, event_id), warnings, len(specs))

    async def rerun(
        self, record: JobRecord, caller: Caller, *, key: str = "", goes_on: bool = False, kept_script: str = ""
    ) -> SubmitOutcome:
        """Submit the manifest of a job again: the next run of its name, which the same user owns.

        The run of a task of an array has the task's variables and is in no array, so that the array stays as it was.
        One that `goes_on` has the folder of the job, and in place of the script that was kept of it `kept_script`.

        Raises WrongState where it has no manifest or cannot go on, and the errors of `submit`.
        """
        if goes_on:
            await _processes_end(record)
        continues = self._continued(record) if goes_on else ""
        events = await self._journal.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest is None:
            raise WrongState(f"job {record.spec.job_id} was submitted without a manifest: it cannot run again")
        owner = replace(caller, user=record.spec.user)
        task = fact.spec.task_environment
        manifest = without_array(fact.spec.manifest) if task else fact.spec.manifest
        parsed, spec, warnings = self.read(with_kept_script(manifest, kept_script) if goes_on else manifest, owner)
        await self._rules.account(spec.user)
        await self._rules.refuse_unusable(parsed)
        await self._rules.refuse_forbidden(parsed, caller)
        event_id = _event_id("rerun", caller.user, key) if key else self._journal.clock.new_id()
        try:
            spec = replace(spec, rerun_task=task, continues=continues)
            outcome = await self._submit([spec], parsed, caller, key, event_id)
        except AlreadyExists as error:
            raise self._live_run(record, error) from error
        return SubmitOutcome(*outcome, warnings)

    def _continued(self, record: JobRecord) -> str:
        """Return the job in whose folder the next run of an ended job goes on; empty: there is none yet."""
        job_id = record.spec.job_id
        if self._rules.gpu_resource:
            raise WrongState(f"job {job_id}: on Kubernetes its files are in its volumes, where each run finds them")
        if not record.is_live and record.job.workers:
            raise WrongState(f"job {job_id} has ended, but its processes have not yet: try again in a moment")
        first = record.spec.continues or (job_id if record.job.first_started_at is not None else "")
        found = self._job_registry.job(first) if first else None
        if first and (found is None or found.folder_deleted_at is not None):
            by = f" by {found.folder_deleted_by}" if found is not None else ", as it ended long ago"
            raise WrongState(f"the folder of job {first} was deleted{by}: nothing is left to go on from; `voda rerun`")
        return first

    def _live_run(self, record: JobRecord, error: AlreadyExists) -> AlreadyExists:
        """Return the error of a rerun, which names the live run of the user's job, where that is the reason."""
        spec = record.spec
        live_id = self._job_registry.live_named(spec.namespace, spec.name or spec.job_id)
        live = self._job_registry.job(live_id) if live_id is not None else None
        if live is None or live.spec.user != spec.user:
            return error
        what = f"job {live_id}" if live is record else f"{live_id}, a later run of {spec.job_id},"
        return AlreadyExists(
            f"{what} is live, and a name has one live run at a time: `voda wait {live_id}` and rerun then, or"
            f" `voda delete {live_id}` first; or submit it under another name"
        )

    def check(self, manifest: Mapping[str, Any], caller: Caller) -> CheckedManifest:
        """Return a manifest for `adopt`; raises what that would."""
        checked = self.read(manifest, caller)
        _refuse_whole_array(checked.parsed)
        self._ids.identified([checked.spec], checked.parsed, may_share_name=True)
        self._limits.refuse_beyond(caller, [checked.spec])
        return checked

    async def adopt(
        self, manifest: Mapping[str, Any], caller: Caller, *, uid: str, checked: CheckedManifest | None = None
    ) -> SubmitOutcome:
        """Submit the job of an object that is in the cluster, and register the object, in one append.

        An object (`uid`) that was adopted before leads to its job. `checked` is what `check` returned of the manifest a
        moment ago. Raises the errors of `submit`.
        """
        parsed, spec, warnings = checked or self.read(manifest, caller)
        _refuse_whole_array(parsed)
        event_id = adoption_id(uid)
        await self._none_under_way(event_id)
        if (job_id := self._job_registry.submission(event_id)) is not None:
            if (record := self._job_registry.job(job_id)) is None:
                raise AlreadyExists(f"object {uid} was that of job {job_id}, which ended long ago")
            return SubmitOutcome(record, False, warnings)
        with self._exclusive(event_id, caller, [spec]):
            record = await self._record_in_turn([spec], parsed, event_id, caller, uid=uid)
            return SubmitOutcome(record, True, warnings)

    async def _submit(
        self, specs: Sequence[JobSpec], parsed: ParsedManifest, caller: Caller, key: str, event_id: str
    ) -> tuple[JobRecord, bool]:
        """Return the job, and whether this request submitted it."""
        await self._none_under_way(event_id)
        if key and (job_id := self._job_registry.submission(event_id)) is not None:
            return await self._earlier_job(job_id, specs[0], key), False
        with self._exclusive(event_id, caller, specs):
            return await self._record_in_turn(specs, parsed, event_id, caller), True

    async def _none_under_way(self, event_id: str) -> None:
        while (other := self._under_way.get(event_id)) is not None:
            await other.wait()

    def read(self, manifest: Mapping[str, Any], caller: Caller) -> CheckedManifest:
        """Return what a manifest asks for, checked against the pools alone; raises the errors of `submit`."""
        rules = self._rules
        parsed = parse(
            manifest,
            default_pool=rules.pools[0],
            pool_label=rules.pool_label,
            gpu_resource=rules.gpu_resource,
        )
        parsed = self._rules.counted(replace(parsed, spec=replace(parsed.spec, user=caller.user)))
        parsed = replace(parsed, spec=self._in_pools(parsed, caller))
        return CheckedManifest(parsed, parsed.spec, tuple(self._warnings(parsed)))

    def _in_pools(self, parsed: ParsedManifest, caller: Caller) -> JobSpec:
        """Return a job in the first of its pools, with its virtual cluster in each; `any`: all that take it."""
        is_any = tuple(parsed.pools) == (ANY_POOL,) and ANY_POOL not in self._rules.pools
        specs, cluster = list[JobSpec](), self._journal.view.cluster
        refusals: list[InvalidInput | NotAllowed] = []
        for pool in self._rules.pools if is_any else parsed.pools or (parsed.spec.pool,):
            spec = replace(parsed.spec, pool=pool)
            try:
                self._refuse_unknown_pool(spec)
                refuse_beyond_bounds(cluster.settings(pool), spec.priority, caller, PRIORITY_FIELD)
                specs.append(in_virtual_cluster(cluster.cells(pool), spec, caller))
            except (InvalidInput, NotAllowed) as error:
                if not is_any:
                    raise
                refusals.append(error)
        if not specs:
            raise refusals[0]
        pools = {spec.pool: spec.virtual_cluster for spec in specs}
        return specs[0] if len(pools) == 1 else replace(specs[0], pools=pools)

    def _identified(
        self, specs: Sequence[JobSpec], parsed: ParsedManifest, *, may_share_name: bool = False
    ) -> Sequence[JobSpec]:
        """Return the jobs with their ids, and those of the jobs that they come after; see `JobIds.identified`."""
        found = self._ids.identified(specs, parsed, may_share_name=may_share_name)
        # The last task has the longest index, and all else is the same in all of them.
        if len(found) > 1 and (size := len(found) * len(msgspec.json.encode(found[-1]))) > _MOST_ARRAY_BYTES:
            raise InvalidField(
                ARRAY_FIELD,
                f"{ARRAY_FIELD}: {len(found):,} tasks, with what they come after, have {size:,} bytes, expected up to"
                f" {_MOST_ARRAY_BYTES:,}: submit several arrays, shorten the manifest, or let one job come after the"
                " others, and the array after it",
            )
        return found

    async def _record_in_turn(
        self, specs: Sequence[JobSpec], parsed: ParsedManifest, event_id: str, caller: Caller, *, uid: str = ""
    ) -> JobRecord:
        """Record the submissions; single tasks of arrays one after the other."""
        async with self._joining if specs[0].array is not None and len(specs) == 1 else nullcontext():
            return await self._record(specs, parsed, event_id, caller, uid=uid)

    async def _record(
        self, specs: Sequence[JobSpec], parsed: ParsedManifest, event_id: str, caller: Caller, *, uid: str = ""
    ) -> JobRecord:
        """Append the submissions under the first free ids, with the object that the job comes from, if any."""
        journal = self._journal
        identified = self._identified(specs, parsed, may_share_name=bool(uid))
        # All else than the index is the same in all tasks.
        size = len(identified) * size_of(JobSubmitted(spec=identified[-1]))
        with journal.quota.charged(payer(caller, specs[0].user), size, journal.clock.now()):
            for _ in range(_MOST_TRIES):
                own_ids = [event_id, *(f"{event_id}-{number}" for number in range(1, len(identified)))]
                now = journal.clock.now()
                appends = [
                    Append(f"job.{one.job_id}", 0, _submission(one, own_id, caller.user, now, uid=uid), 0)
                    for one, own_id in zip(identified, own_ids, strict=True)
                ]
                try:
                    position = await journal.store.append_all(appends)
                    break
                except VersionConflict:
                    # Another request took the id: read what it wrote before the next attempt.
                    await journal.catch_up()
                    identified = self._identified(specs, parsed, may_share_name=bool(uid))
            else:
                name = specs[0].name
                raise AlreadyExists(f"job {name}: {_MOST_TRIES} ids in a row were taken by others; submit it again")
        await journal.view.wait_for(position)
        job_id = self._job_registry.submission(event_id)
        assert job_id is not None, "a submission that was appended and read back is known"
        record = self._job_registry.job(job_id)
        assert record is not None, "a job that has just begun is not forgotten"
        return record

    async def _earlier_job(self, job_id: str, spec: JobSpec, key: str) -> JobRecord:
        """Return the job that was submitted with the key, if its manifest was the same."""
        record = self._job_registry.job(job_id)
        if record is None:
            raise AlreadyExists(
                f"Idempotency-Key {key!r} was used for job {job_id}, which ended long ago: use a new one"
            )
        events = await self._journal.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest != spec.manifest:
            raise InvalidInput(
                f"Idempotency-Key {key!r} was used for job {job_id} with another manifest: use a new key for a new job"
            )
        return record

    @contextmanager
    def _exclusive(self, event_id: str, caller: Caller, specs: Sequence[JobSpec]) -> Iterator[None]:
        """Let other requests with the same event wait, and count the jobs as the user's meanwhile."""
        with self._limits.counted(caller, specs):
            done = self._under_way[event_id] = asyncio.Event()
            try:
                yield
            finally:
                del self._under_way[event_id]
                done.set()

    def _refuse_unknown_pool(self, spec: JobSpec) -> None:
        if spec.pool not in self._rules.pools:
            raise InvalidField(
                "metadata.annotations[voda.dev/pool]",
                f"metadata.annotations[voda.dev/pool]: there is no pool {spec.pool[:80]!r}, expected one of"
                f" {', '.join(self._rules.pools)}",
            )

    def _warnings(self, parsed: ParsedManifest) -> Iterator[FieldWarning]:
        """Yield the fields that have no effect, each once, and whether the job has to wait for nodes."""
        by_field: dict[str, FieldWarning] = {}
        for warning in (*self._rules.warnings(parsed), *parsed.warnings):
            by_field.setdefault(warning.field, warning)
        yield from by_field.values()
        yield from pool_warnings(self._journal.view.cluster, parsed, self._rules.quota_shortage)


def _submission(spec: JobSpec, event_id: str, actor: str, now: float, *, uid: str) -> Sequence[Fact]:
    """Return the facts that submit a job, and tie the object to it, if any."""
    facts = [Fact(data=JobSubmitted(spec=spec), event_id=event_id, recorded_at=now, actor=actor)]
    if uid:
        register = JobRegistered(job_id=spec.job_id, uid=uid, kind=spec.kind)
        facts.append(Fact(data=register, event_id=registration_id(uid), recorded_at=now, actor=actor))
    return facts


def _refuse_whole_array(parsed: ParsedManifest) -> None:
    """Raise for an object that says that it is a whole array: it is one object, so it is one task."""
    if parsed.array is not None:
        raise InvalidField(
            ARRAY_FIELD,
            f"{ARRAY_FIELD}: an object is one task: give it {ARRAY_NAME} and {ARRAY_TASK} too, or submit the array with"
            " voda submit --array, which creates an object for each task",
        )


def adoption_id(uid: str) -> str:
    """Return the id of the event that submits the job of an object, whatever its user."""
    return f"adopt-{uid}"


def registration_id(uid: str) -> str:
    """Return the id of the event that ties an object to its job."""
    return f"register-{uid}"


def _event_id(verb: str, user: str, key: str) -> str:
    """Return the id of the event that submits the job of a key; each user has keys of their own, and each verb."""
    if len(key) > _MOST_KEY or not key.isprintable():
        raise InvalidField("Idempotency-Key", f"Idempotency-Key: expected 1 to {_MOST_KEY} printable characters")
    return f"{verb}-" + sha256(f"{user}\n{key}".encode()).hexdigest()[:32]


async def _processes_end(record: JobRecord) -> None:
    """Wait a moment for the processes of a job that has ended: it is told before they are gone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDING_S):
            while record.job.workers and not record.is_live:  # noqa: ASYNC110 - the log may say so at any time
                await asyncio.sleep(0.05)
