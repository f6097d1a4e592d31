"""Manifests of live jobs stay in memory: those of a user are bounded, and those of all, an equal part for each."""

from typing import Any

import pytest

from tests.builders import a_spec
from tests.service import a_backend, a_manifest
from voda.application.job_rules import JobRules, LiveJobLimits
from voda.auth.callers import Caller
from voda.domain.errors import TooManyJobs
from voda.projections.jobs.record import submitted_bytes
from voda.projections.jobs.registry import JobRegistry


async def test_user_with_less_than_an_equal_part_is_served_when_all_live_jobs_have_too_many_bytes() -> None:
    async with a_backend(live_bytes_per_user=10_000, jobs_per_user=100) as backend:

        async def submit(user: str, name: str) -> None:
            large: dict[str, Any] = a_manifest(f"{user}-{name}", padding="x" * 3_900)
            await backend.submits.submit(large, Caller(user=user, role="user"))

        for user in "abcd":
            await submit(user, "1")
            await submit(user, "2")
        # All may have 40 kB.
        await submit("e", "1")
        with pytest.raises(TooManyJobs, match="of it, more than an equal part: wait"):
            await submit("e", "2")
        await submit("f", "1")


def test_many_users_one_after_the_other_never_have_more_than_the_most_of_all() -> None:
    most, registry = 2_560_000, JobRegistry()
    limits = LiveJobLimits(registry, JobRules(pools=["default"], jobs_per_user=10_000, live_bytes_per_user=most))

    def fill(user: str, padding: int) -> int:
        """Submit jobs of a user until they are refused, and return how many there are."""
        spec = a_spec("job", user=user, manifest={"padding": "x" * padding})
        for jobs in range(10_000):
            try:
                limits.refuse_beyond(Caller(user=user, role="user"), [spec])
            except TooManyJobs:
                return jobs
            registry.live.add(user, submitted_bytes(spec))
        raise AssertionError("nothing is refused")

    for number in range(256):
        fill(f"user-{number}", 40_000)
        assert sum(registry.live.users().values()) <= 8 * most
    assert sum(registry.live.users().values()) > 7 * most
    assert fill("late", 100) == 1, "the last part is for users who have nothing"
    assert sum(registry.live.users().values()) <= 8 * most
