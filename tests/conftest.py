"""What every test shares: hypothesis profiles and the switches of this project's own.

Rule: a run is repeatable; chance is asked for by name (HYPOTHESIS_PROFILE=explore).
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.nats import nats_cluster, nats_server
from tests.postgres import postgres_database, postgres_server

__all__ = ["nats_cluster", "nats_server", "postgres_database", "postgres_server"]

settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))  # noqa: TID251 - tests have no voda.config


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites the expected plans of the replay tests, and how much chaos there shall be."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")
    parser.addoption("--chaos", type=int, default=1, help="how many seeds the test of chaos is run with")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether a replay test shall write its golden file instead of comparing with it."""
    return bool(request.config.getoption("--update-golden"))
