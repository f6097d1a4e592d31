"""The server itself: unknown paths, refusals, slow and broken clients."""

from tests.service import a_service
from voda.api.schemas import Problem

PROBLEM = "application/problem+json"


async def test_path_when_unknown_is_a_problem() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/nothing")
    assert (answer.status, answer.headers["Content-Type"]) == (404, PROBLEM)
    assert "/api/v1/nothing" in answer.as_a(Problem).detail
