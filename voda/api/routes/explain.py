"""Why a job has what it has, or waits; now, or at any moment of the past."""

import asyncio
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import Operation, Response, Routes
from voda.api.presenters.explanations import explanation_of
from voda.api.requests import json_response, query_of
from voda.api.schemas import ExplanationView
from voda.application.backend import Backend
from voda.application.lookup import spec_of
from voda.auth import Caller
from voda.domain.errors import InvalidField, InvalidInput
from voda.timetravel.explanation import JobExplanation
from voda.timetravel.job_explanation import explain, explain_in
from voda.timetravel.moment import LogPlace, find, parse_moment

_AT_ONCE = 2
"""Explanations worked on at a time: each keeps a core busy while it asks policies."""


class ExplainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At which moment."""

    at: Annotated[
        str,
        Meta(
            description="A position (42), a time (2026-01-31T12:00:00Z), a span after the first event (+1h30m) or"
            " before the last one (-10m); by default now.",
            max_length=80,
        ),
    ] = ""


class ExplanationRoutes(Routes):
    """The operation that explains."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/explain",
        description="The reason is not looked up: the policy is asked again, with the state of that moment.",
        tag="Jobs",
        path_parameters={"job_id": "Id of the job, or its name: the latest job of that name."},
        query=ExplainQuery,
        answers=[Response(of=ExplanationView)],
        problems=[404, 503],
    )
    async def explain_job(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Explain why a job has what it has, or waits."""
        query = query_of(request, ExplainQuery)
        job_id = (await spec_of(self.backend, request.match_info["job_id"])).job_id
        place = await self._place(query.at) if query.at else None
        async with self._turns:
            if place is None:
                explanation = await self._now(job_id)
            else:
                explanation = await explain(self.backend.store, job_id, place)
        forecast = self.backend.view.forecasts.get(job_id)
        expected = forecast.starts_at if forecast is not None and place is None and explanation.shortage else None
        return json_response(explanation_of(explanation, expected_start_at=expected))

    async def _now(self, job_id: str) -> JobExplanation:
        store, live, now = self.backend.store, self.backend.view.live, self.backend.clock.now()
        if (job := live.cluster.job(job_id)) is not None:
            return await explain_in(store, live.state(job.spec.pool), job_id, now)
        return await explain(store, job_id, LogPlace(position=self.backend.view.position, at=now))

    async def _place(self, at: str) -> LogPlace:
        try:
            return await find(self.backend.store, parse_moment(at))
        except InvalidInput as error:
            raise InvalidField("at", str(error)) from error
