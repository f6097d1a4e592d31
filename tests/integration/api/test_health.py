"""Health, readiness and figures over HTTP."""

import asyncio
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders import a_node, a_spec
from tests.service import START, Service, a_service
from voda.events.types import JobSubmitted, NodeChanged, NodeJoined, PlanAdopted, WorkerStarted
from voda.wire.base import Problem

Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


async def figures(service: Service) -> Figures:
    answer = await service.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(told: Figures, name: str, **labels: str) -> float:
    return told[f"voda_{name}", frozenset(labels.items())]


async def test_health_when_asked_then_is_ok() -> None:
    async with a_service() as service:
        for path in ("/healthz", "/livez", "/readyz"):
            answer = await service.ask("GET", path)
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")


async def test_readiness_when_the_pool_stands_still_then_says_why() -> None:
    async with a_service(not_ready=lambda: "pool default: the log cannot be written: disk full") as service:
        answer = await service.ask("GET", "/readyz")
        assert answer.status == 503
        assert answer.as_a(Problem).detail == "not ready: pool default: the log cannot be written: disk full"
        assert (await service.ask("GET", "/healthz")).status == 200
        assert value(await figures(service), "ready") == 0


async def test_figures_tell_jobs_gpus_and_what_differs_from_the_plan() -> None:
    async with a_service(nodes={"n1": 4, "n2": 2}) as service:
        await service.happens(NodeChanged(node=a_node("n2", gpus=2, foreign_gpus=1)))
        await service.happens(NodeJoined(node=a_node("n3", gpus=8, is_ready=False)))
        await service.happens(JobSubmitted(spec=a_spec("a", min_replicas=3, max_replicas=3)))
        await service.happens(JobSubmitted(spec=a_spec("b", gpus_per_replica=2)))
        plan = PlanAdopted(
            pool="default",
            number=7,
            based_on=6,
            policy="fifo",
            placer="steady",
            cause="job.submitted",
            placed={"a": ("n1", "n1", "n1")},
        )
        await service.happens(plan)
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 3: "n1"}))
        told = await figures(service)
        assert value(told, "jobs", pool="default", phase="Running") == 1
        assert value(told, "jobs", pool="default", phase="Waiting") == 1
        states = {"allocated": 3, "idle": 2, "foreign": 1, "unavailable": 8}
        assert {state: value(told, "gpus", pool="default", state=state) for state in states} == states
        assert value(told, "node_gpus", pool="default", node="n1", state="idle") == 1
        # One idle GPU on n1 and one on n2: none of them holds a worker of b, which needs two.
        assert value(told, "gpus_fragmented", pool="default") == 2
        assert value(told, "drift_workers", pool="default", kind="missing") == 1
        assert value(told, "drift_workers", pool="default", kind="unplanned") == 1
        assert (value(told, "plan_number", pool="default"), value(told, "ready")) == (7, 1)
        assert value(told, "plan_timestamp_seconds", pool="default") == START
        assert value(told, "jobs_submitted_total", pool="default") == 2
        assert value(told, "events_total", type="job.submitted") == 2
        assert value(told, "job_starts_total", pool="default") == 1


async def test_figures_tell_requests_by_route_and_never_by_what_callers_make_up() -> None:
    async with a_service() as service:
        await service.ask("GET", "/api/v1/jobs/no-such-job")
        await service.ask("GET", "/etc/passwd")
        await service.ask("BREW", "/api/v1/jobs")
        told = await figures(service)
        route = "/api/v1/jobs/{job_id}"
        assert value(told, "http_requests_total", method="GET", route=route, status="404") == 1
        assert value(told, "http_request_duration_seconds_count", method="GET", route=route) == 1
        assert value(told, "http_requests_total", method="GET", route="none", status="404") == 1
        assert not any("passwd" in text or "BREW" in text for _, labels in told for _, text in labels)
        assert value(told, "http_requests_in_progress") == 1  # this one


async def test_figures_tell_how_far_the_view_is_behind_the_log() -> None:
    async with a_service() as service:
        assert value(await figures(service), "projection_lag_events") == 0
        assert value(await figures(service), "log_position") == 1
        backend = service.backend

        async def stuck() -> int:
            return backend.journal.view.position + 3

        backend.journal.store.position = stuck  # type: ignore[method-assign]
        assert value(await figures(service), "projection_lag_events") == 3


@pytest.mark.slow
async def test_figures_come_also_when_the_log_does_not_answer() -> None:
    async with a_service() as service:

        async def silent() -> int:
            await asyncio.sleep(3_600)
            return 0

        service.backend.journal.store.position = silent  # type: ignore[method-assign]
        assert value(await figures(service), "log_position") == 1
