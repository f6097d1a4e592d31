"""Builders of what travels over HTTP: each takes what the test is about and fills in the rest."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from voda.api.presenters.pools import settings_of
from voda.domain.job import Phase
from voda.domain.settings import Settings
from voda.wire.jobs import ForecastView, JobView, ProgressView, WorkerView
from voda.wire.pools import NodeView, PoolView

NOW = datetime(2026, 1, 31, 14, 5, 9, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    """Return an instant before NOW."""
    return NOW - timedelta(seconds=seconds)


def a_wire_job(job_id: str = "digits", *, on: tuple[str, ...] = (), **fields: Any) -> JobView:
    """Return a job as the API shows it; running on these nodes, or waiting for two minutes."""
    phase = Phase.RUNNING if on else Phase.WAITING
    progress = ProgressView(
        epochs_done=fields.pop("epochs_done", 0.0),
        epochs=fields.pop("epochs", 0),
        epoch_s=fields.pop("epoch_s", None),
        metrics=fields.pop("metrics", {}),
        reported_at=fields.pop("reported_at", None),
    )
    forecast = ForecastView(
        position=fields.pop("position", None),
        starts_at=fields.pop("starts_at", None),
        made_at=fields.pop("made_at", None),
        finishes_at=fields.pop("finishes_at", None),
    )
    defaults: dict[str, Any] = {
        "name": job_id,
        "namespace": "default",
        "user": "ada",
        "pool": "default",
        "kind": "MPIJob",
        "priority": 0,
        "phase": phase,
        "is_preempted": False,
        "is_canceling": False,
        "min_replicas": 1,
        "max_replicas": 4,
        "requested_replicas": 2,
        "gpus_per_replica": 1,
        "replicas": len(on),
        "planned_replicas": len(on),
        "reason": None,
        "message": "",
        "workers": tuple(WorkerView(index=index, node=node) for index, node in enumerate(on)),
        "submitted_at": ago(120),
        "started_at": ago(90) if on else None,
        "finished_at": None,
        "running_s": 0.0,
        "waiting_s": 30.0 if on else 0.0,
        "counted_at": ago(90 if on else 120),
        "gpu_s": 0.0,
        "restarts": 0,
        "resizes": 0,
        "failures": 0,
        "revision": "1",
    }
    return JobView(job_id=job_id, progress=progress, forecast=forecast, **{**defaults, **fields})


def a_wire_node(name: str = "n1", *, jobs: Mapping[str, int] | None = None, gpus: int = 4, **fields: Any) -> NodeView:
    """Return a node as the API shows it."""
    used, foreign = sum((jobs or {}).values()), fields.pop("foreign_gpus", 0)
    return NodeView(
        name=name,
        gpus=gpus,
        foreign_gpus=foreign,
        used_gpus=used,
        free_gpus=gpus - used - foreign,
        jobs=jobs or {},
        **{
            "pool": "default",
            "is_ready": True,
            "is_schedulable": True,
            "is_draining": False,
            "drain_message": "",
            "labels": {},
            **fields,
        },
    )


def wire_settings(**fields: Any) -> Settings:
    """Return the settings of a pool as the API shows them."""
    return replace(settings_of(Settings()), **fields)


def a_wire_pool(name: str = "default", **fields: Any) -> PoolView:
    """Return a pool as the API shows it."""
    figures = {"nodes": 1, "gpus": 4, "used_gpus": 3, "waiting": 1, "running": 2, "plan": 12, "revision": "1"}
    return PoolView(name=name, **{**figures, "settings": wire_settings(), **fields})
