"""Jobs as wire records."""

from voda.api import schemas
from voda.api.presenters.timestamps import instant
from voda.projections.job_record import JobRecord, ProgressReport
from voda.simulator.whatif.forecast import ExpectedTimes

_NOTHING_EXPECTED = schemas.Forecast()


def job_of(record: JobRecord, forecast: ExpectedTimes | None = None, forecast_at: float | None = None) -> schemas.Job:
    """Return a job as it is told.

    Args:
        record: what the log shows of it.
        forecast: what is expected of it; None = nothing.
        forecast_at: instant of the forecast, seconds since the epoch.
    """
    spec, job = record.spec, record.job
    return schemas.Job(
        job_id=spec.job_id,
        name=spec.name or spec.job_id,
        namespace=spec.namespace,
        user=spec.user,
        pool=spec.pool,
        kind=spec.kind,
        priority=spec.priority,
        phase=job.phase,
        is_preempted=record.is_preempted,
        is_canceling=record.is_canceling,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        requested_replicas=spec.requested,
        gpus_per_replica=spec.gpus_per_replica,
        replicas=job.replicas,
        planned_replicas=len(record.planned),
        reason=record.explanation,
        workers=tuple(schemas.Worker(index=index, node=node) for index, node in sorted(job.workers.items())),
        submitted_at=instant(job.submitted_at),
        started_at=instant(job.first_started_at),
        finished_at=instant(record.finished_at),
        running_s=job.running_s,
        waiting_s=job.waiting_s,
        counted_at=instant(job.counted_at),
        gpu_s=job.attained_service_gpu_s,
        restarts=job.restarts,
        resizes=record.resizes,
        failures=job.failures,
        progress=schemas.Progress(
            epochs_done=job.epochs_done,
            epochs=spec.epochs,
            epoch_s=record.epoch_s,
            metrics=record.metrics,
            reported_at=instant(record.reported_at),
        ),
        forecast=_forecast(record, forecast, forecast_at) if forecast is not None else _NOTHING_EXPECTED,
        revision=str(record.revision),
    )


def reports_of(record: JobRecord) -> schemas.ReportList:
    """Return what a job reported, oldest first."""
    return schemas.ReportList(items=tuple(_report(report) for report in record.reports))


def _forecast(record: JobRecord, forecast: ExpectedTimes, made_at: float | None) -> schemas.Forecast:
    # A forecast is older than what is observed: who was next a moment ago may run, or be canceled, by now.
    waits = record.is_live and not record.is_canceling and not record.job.replicas
    return schemas.Forecast(
        position=forecast.position if waits else None,
        starts_at=instant(forecast.starts_at) if waits else None,
        finishes_at=instant(forecast.finishes_at) if record.is_live else None,
        made_at=instant(made_at),
    )


def _report(report: ProgressReport) -> schemas.Reported:
    return schemas.Reported(
        epochs_done=report.epochs_done,
        reported_at=instant(report.at),
        workers=report.workers,
        epoch_s=report.epoch_s,
        metrics=report.metrics,
    )
