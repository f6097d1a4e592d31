"""Changes a live job: its bounds, priority and epochs; cancels it; records the progress that it reports of itself.

Rules: only what would take effect is recorded: a change to what the job has already records nothing. A bound that
this module checks with a sentence of its own is `extra_json_schema`, for the OpenAPI document alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Final, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from voda.application.job_rules import refuse_beyond_bounds, refuse_stop
from voda.application.journal import Journal
from voda.application.virtual_clusters.membership import (
    refuse_lent_cells,
    refuse_pin_without_guarantee,
    refuse_priority,
)
from voda.auth.callers import Caller
from voda.auth.write_quota import payer
from voda.domain.errors import InvalidField, NotAllowed, PreconditionFailed, VersionConflict, WrongState
from voda.domain.job import MOST_REPLICAS, JobSpec, MetricValue
from voda.domain.reasons.requests import Requested
from voda.domain.sizes import JobSizes
from voda.domain.sizes.text import parse_sizes
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobCancelRequested, JobChanged, JobProgressed
from voda.log.append_plan import Append
from voda.manifests.conversion import typed_manifest
from voda.manifests.programs import is_plain
from voda.projections.jobs.record import MOST_METRICS, MOST_METRICS_BYTES, JobRecord, metrics_bytes

Figure = TypeVar("Figure", int, float)
IsExpected = Callable[[int], bool]
"""revision -> whether the caller has seen the job as it is at that revision."""
_MOST_FIGURE: Final = 1_000_000_000
"""Of a priority or of epochs."""
_MOST_S: Final = 1_000_000_000
_MOST_RATE: Final = 1e15
_MOST_LETTERS: Final = 200
"""Of a metric's name."""

_Replicas = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_REPLICAS})]
_Workers = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MOST_REPLICAS})]
_Priority = Annotated[int, Meta(extra_json_schema={"minimum": -_MOST_FIGURE, "maximum": _MOST_FIGURE})]
_Epochs = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": _MOST_FIGURE})]
_EpochsDone = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": _MOST_FIGURE})]
_Seconds = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": _MOST_S})]
_Rate = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": _MOST_RATE})]


class JobPatch(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A change of a live job: a JSON merge patch; what is absent stays."""

    min_replicas: _Replicas | UnsetType = UNSET
    max_replicas: _Replicas | UnsetType = UNSET
    requested_replicas: _Replicas | UnsetType = UNSET
    sizes: Annotated[str, Meta(description="All at which it runs: 1-4, 2-16:2 (steps) or 1,2,4,8.")] | UnsetType = UNSET
    priority: _Priority | UnsetType = UNSET
    epochs: _Epochs | UnsetType = UNSET


class ProgressReport(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job's own report of an epoch or step; sent by voda.report."""

    epoch: Annotated[_EpochsDone, Meta(description="Epochs done, the one just finished included.")]
    workers: _Workers | None = None
    epoch_time_s: _Seconds | None = None
    step_time_s: _Seconds | None = None
    samples_per_s: _Rate | None = None
    epoch_samples: _Rate | None = None
    metrics: Mapping[str, MetricValue] = {}
    report_id: Annotated[str, Meta(description="Chosen by the job; the same report sent again is recorded once.")] = ""


async def change(
    journal: Journal, record: JobRecord, wanted: JobPatch, caller: Caller, *, is_expected: IsExpected | None = None
) -> JobRecord:
    """Record a change of a live job, and return the job once the change is folded.

    Raises:
        WrongState: the job has ended, or would be resized and is not restartable.
        PreconditionFailed: the job has changed since `is_expected` was true of it.
        InvalidField: the new figures contradict each other, a priority is the admins' or means nothing in a pool with
            virtual clusters, or a plain program would have several workers.
        QuotaExceeded: the user has written as much to the log as one may.
    """
    job_id = record.spec.job_id
    version = await _version_if(is_expected, journal, record)
    _refuse_ended(record, "changed")
    spec = changed_spec(record.spec, wanted)
    if spec == record.spec:
        return record
    if spec.priority != record.spec.priority:
        refuse_priority(journal.view.cluster.cells(spec.pool), spec.priority, "priority")
        refuse_pin_without_guarantee(spec, "priority")
        refuse_lent_cells(journal.view.cluster.cells(spec.pool), spec, "priority")
        refuse_beyond_bounds(journal.view.cluster.settings(spec.pool), spec.priority, caller, "priority")
    _refuse_copies(journal, record.spec, spec)
    if _sizes(spec) != _sizes(record.spec):
        refuse_stop(record, "resized")
    given = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not UNSET}
    if wanted.sizes is not UNSET:
        given |= {"sizes": spec.sizes or JobSizes.of(range(spec.min_replicas, spec.max_replicas + 1))}
        given |= {"min_replicas": spec.min_replicas, "max_replicas": spec.max_replicas}
    fact = JobChanged(job_id=job_id, by=caller.user, **given)
    try:
        position = await journal.record(fact, actor=caller.user, payer=payer(caller, spec.user), version=version)
    except VersionConflict as error:
        raise _changed_meanwhile(record) from error
    # An end that was recorded first leaves the change without effect.
    if record.revision < position:
        _refuse_ended(record, "changed")
    return record


def _sizes(spec: JobSpec) -> tuple[object, ...]:
    return spec.min_replicas, spec.max_replicas, spec.requested, spec.sizes


def changed_spec(spec: JobSpec, wanted: JobPatch) -> JobSpec:
    """Return the spec after the change; raises InvalidField where a figure is out of bounds."""
    sizes, bounds = spec.sizes, (spec.min_replicas, spec.max_replicas)
    if wanted.sizes is not UNSET:
        sizes = parse_sizes(wanted.sizes, "sizes")
        bounds = sizes.least, sizes.most
    least = _within("min_replicas", _or(wanted.min_replicas, bounds[0]), 1, MOST_REPLICAS)
    most = _within("max_replicas", _or(wanted.max_replicas, bounds[1]), 1, MOST_REPLICAS)
    for field, bound in (("min_replicas", least), ("max_replicas", most)):
        _refuse_other_size(spec, sizes, field, bound)
    if least > most:
        raise _crossed(wanted, least, most)
    if spec.share is not None and most > 1:
        raise InvalidField("max_replicas", f"max_replicas: a part of a GPU is for one worker, got {most}")
    if most > 1 and spec.manifest is not None and typed_manifest(spec.manifest).is_rigid:
        raise InvalidField("max_replicas", f"max_replicas: a {spec.kind} without numbered replicas has one, got {most}")
    if wanted.requested_replicas is UNSET:
        requested = min(max(spec.requested, least), most)
        requested = requested if sizes is None else sizes.floor(requested)
    else:
        requested = _within("requested_replicas", wanted.requested_replicas, least, most)
        _refuse_other_size(spec, sizes, "requested_replicas", requested)
    return replace(
        spec,
        min_replicas=least,
        max_replicas=most,
        sizes=None if sizes is None or sizes.is_dense else sizes,
        requested_replicas=requested if requested != spec.requested else spec.requested_replicas,
        priority=_within("priority", _or(wanted.priority, spec.priority), -_MOST_FIGURE, _MOST_FIGURE),
        epochs=_within("epochs", _or(wanted.epochs, spec.epochs), 0, _MOST_FIGURE),
    )


def _refuse_other_size(spec: JobSpec, sizes: JobSizes | None, field: str, size: int) -> None:
    """Raise InvalidField where a job does not run with so many workers."""
    if sizes is not None and size not in sizes:
        raise InvalidField(
            field,
            f"{field}: job {spec.job_id} can run with {sizes} workers: expected one of these (or new sizes, such as"
            f" 1-4:1), got {size}",
        )


def _refuse_copies(journal: Journal, before: JobSpec, after: JobSpec) -> None:
    """Raise InvalidField where a plain program, of which more workers would be copies, would have more than one."""
    job = journal.view.cluster.job(before.job_id)
    manifest = job.spec.manifest if job is not None else None
    if manifest is None or not is_plain(manifest) or after.max_replicas <= max(before.max_replicas, 1):
        return
    raise InvalidField(
        "max_replicas",
        f"max_replicas: job {before.job_id} runs a plain program, which has one worker, not {after.max_replicas}:"
        " submitted with --launcher mpirun or torchrun it could have more",
    )


def _crossed(wanted: JobPatch, least: int, most: int) -> InvalidField:
    """Return the error of a minimum above the maximum, about the bound that is changed."""
    if wanted.max_replicas is UNSET:
        return InvalidField(
            "min_replicas",
            f"min_replicas: expected {most} or less, the job's maximum, got {least}: change max_replicas too",
        )
    own = "the minimum" if wanted.min_replicas is not UNSET else "the job's minimum"
    other = "" if wanted.min_replicas is not UNSET else ": change min_replicas too"
    return InvalidField("max_replicas", f"max_replicas: expected {least} or more, {own}, got {most}{other}")


async def cancel(  # noqa: PLR0913 - what a DELETE may say
    journal: Journal,
    record: JobRecord,
    caller: Caller,
    *,
    reason: str = "",
    is_kill: bool = False,
    is_expected: IsExpected | None = None,
) -> None:
    """Cancel a live job, and return once that is folded; one that has ended, or is canceled so already, stays as it is.

    Raises:
        NotAllowed: it is to be killed (`is_kill`), and the caller is no admin.
        PreconditionFailed: the job has changed since `is_expected` was true of it.
    """
    _refuse_kill(caller, is_kill=is_kill)
    version = await _version_if(is_expected, journal, record)
    if not _is_to_cancel(record, is_kill=is_kill):
        return
    why = Requested(by=caller.user or "nobody", text=reason)
    fact = JobCancelRequested(job_id=record.spec.job_id, reason=why, is_kill=is_kill)
    try:
        await journal.record(fact, actor=caller.user, version=version)
    except VersionConflict as error:
        raise _changed_meanwhile(record) from error


async def cancel_array(
    journal: Journal, records: Sequence[JobRecord], caller: Caller, *, reason: str = "", is_kill: bool = False
) -> None:
    """Cancel those of an array's tasks that are live, all of them or none, and return once that is folded; see
    `cancel`.
    """
    _refuse_kill(caller, is_kill=is_kill)
    clock, appends = journal.clock, []
    for record in records:
        if _is_to_cancel(record, is_kill=is_kill):
            why = Requested(by=caller.user or "nobody", text=reason)
            data = JobCancelRequested(job_id=record.spec.job_id, reason=why, with_array=True, is_kill=is_kill)
            fact = Fact(data=data, event_id=clock.new_id(), recorded_at=clock.now(), actor=caller.user)
            appends.append(Append(data.stream, ANY_VERSION, [fact], 0))
    if appends:
        await journal.view.wait_for(await journal.store.append_all(appends))


def _refuse_kill(caller: Caller, *, is_kill: bool) -> None:
    if is_kill and caller.role != "admin":
        raise NotAllowed("only admins may kill jobs at once (now): without it, a job has its grace to end by itself")


def _is_to_cancel(record: JobRecord, *, is_kill: bool) -> bool:
    return record.is_live and not (record.job.is_killed if is_kill else record.is_canceling)


async def report(journal: Journal, record: JobRecord, progress: ProgressReport, caller: Caller) -> None:
    """Record the progress that a live job reports, once per report id, and return once it is folded.

    Raises:
        WrongState: the job has ended.
        InvalidField: a figure is out of bounds, or the metrics are too many or too large.
        QuotaExceeded: the job's user has written as much to the log as one may.
    """
    _refuse_ended(record, "reported on")
    job_id = record.spec.job_id
    _refuse_odd_metrics(progress)
    workers = _within(
        "workers", len(record.job.workers) if progress.workers is None else progress.workers, 0, MOST_REPLICAS
    )
    fact = JobProgressed(
        job_id=job_id,
        epochs_done=_within("epoch", _finite("epoch", progress.epoch), 0, _MOST_FIGURE),
        workers=workers,
        epoch_s=_positive("epoch_time_s", progress.epoch_time_s, _MOST_S),
        is_raw=progress.epoch_time_s is not None,
        step_s=_positive("step_time_s", progress.step_time_s, _MOST_S),
        samples_per_s=_positive("samples_per_s", progress.samples_per_s, _MOST_RATE),
        epoch_samples=_positive("epoch_samples", progress.epoch_samples, _MOST_RATE),
        metrics=progress.metrics,
    )
    event_id = ""
    if progress.report_id:
        event_id = "report-" + sha256(f"{job_id}\n{progress.report_id}".encode()).hexdigest()[:32]
    actor = f"job/{job_id}" if caller.role == "job" else caller.user
    await journal.record(fact, actor=actor, payer=payer(caller, record.spec.user), event_id=event_id)


async def _version_if(is_expected: IsExpected | None, journal: Journal, record: JobRecord) -> int:
    """Return the version that the job's stream must still have when something is recorded."""
    if is_expected is None:
        return ANY_VERSION
    # The head first: what it counts is at or before the position, and so in the view that is compared.
    head = await journal.store.head(f"job.{record.spec.job_id}")
    await journal.catch_up()
    if not is_expected(record.revision):
        raise _changed_meanwhile(record)
    return head.version


def _changed_meanwhile(record: JobRecord) -> PreconditionFailed:
    return PreconditionFailed(
        f"job {record.spec.job_id} is at revision {record.revision}, which If-Match does not name: get it again,"
        " and decide again"
    )


def _refuse_ended(record: JobRecord, done: str) -> None:
    if not record.is_live:
        raise WrongState(f"job {record.spec.job_id} is {record.phase.value}: only live jobs can be {done}")


def _refuse_odd_metrics(progress: ProgressReport) -> None:
    if len(progress.metrics) > MOST_METRICS:
        raise InvalidField("metrics", f"metrics: {len(progress.metrics)} of them, expected {MOST_METRICS} or fewer")
    if (size := metrics_bytes(progress.metrics)) > MOST_METRICS_BYTES:
        raise InvalidField(
            "metrics",
            f"metrics: {size:,} bytes of names and values, expected {MOST_METRICS_BYTES:,} or fewer: shorten the names,"
            " or report fewer of them",
        )
    for name, value in progress.metrics.items():
        if len(name) > _MOST_LETTERS or not name.isprintable():
            raise InvalidField("metrics", f"metrics: expected names of up to {_MOST_LETTERS} printable characters")
        if not isinstance(value, str):
            _finite(f"metrics.{name}", value)


def _positive(field: str, value: float | None, most: float) -> float | None:
    if value is not None and not 0 < value <= most:
        raise InvalidField(field, f"{field} is {value:g}, expected more than 0 and at most {most:g}")
    return value


def _finite(field: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidField(field, f"{field} is {value}, expected a finite number")
    return value


def _or(wanted: int | UnsetType, before: int) -> int:
    return before if isinstance(wanted, UnsetType) else wanted


def _within(field: str, value: Figure, least: int, most: int) -> Figure:
    if not least <= value <= most:
        raise InvalidField(field, f"{field} is {value}, expected {least} to {most}")
    return value
