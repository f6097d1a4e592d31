"""Jobs as wire records."""

from voda.api.presenters.conversion import instant
from voda.api.schemas.jobs import ForecastView, JobView, ProgressView, ReportList, ReportView, WorkerView
from voda.projections.job_record import JobRecord, RecordedReport
from voda.simulator.whatif.forecast import ExpectedTimes

_NO_FORECAST = ForecastView()


def job_of(record: JobRecord, forecast: ExpectedTimes | None = None, forecast_at: float | None = None) -> JobView:
    """Return a job as the API shows it.

    Args:
        record: the job as the log has it.
        forecast: of the job; None = there is none.
        forecast_at: instant of the forecast, seconds since the epoch.
    """
    spec, job = record.spec, record.job
    return JobView(
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
        workers=tuple(WorkerView(index=index, node=node) for index, node in sorted(job.workers.items())),
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
        progress=ProgressView(
            epochs_done=job.epochs_done,
            epochs=spec.epochs,
            epoch_s=record.epoch_s,
            metrics=record.metrics,
            reported_at=instant(record.reported_at),
        ),
        forecast=_forecast(record, forecast, forecast_at) if forecast is not None else _NO_FORECAST,
        revision=str(record.revision),
    )


def reports_of(record: JobRecord) -> ReportList:
    """Return what a job reported, oldest first."""
    return ReportList(items=tuple(_report(report) for report in record.reports))


def _forecast(record: JobRecord, forecast: ExpectedTimes, made_at: float | None) -> ForecastView:
    # A forecast is older than the state: a job that was next in the queue may run, or be canceled, by now.
    waits = record.is_live and not record.is_canceling and not record.job.replicas
    return ForecastView(
        position=forecast.position if waits else None,
        starts_at=instant(forecast.starts_at) if waits else None,
        finishes_at=instant(forecast.finishes_at) if record.is_live else None,
        made_at=instant(made_at),
    )


def _report(report: RecordedReport) -> ReportView:
    return ReportView(
        epochs_done=report.epochs_done,
        reported_at=instant(report.at),
        workers=report.workers,
        epoch_s=report.epoch_s,
        metrics=report.metrics,
    )
