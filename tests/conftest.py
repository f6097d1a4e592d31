"""What every test shares: hypothesis profiles, event loops and the switches of this project's own.

Rule: a run is repeatable; chance is asked for by name (HYPOTHESIS_PROFILE=explore).
"""

import asyncio
import gc
import os
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import voda
from tests.nats import nats_cluster, nats_server
from tests.postgres import postgres_database, postgres_server
from tests.virtual_time import VirtualLoop

__all__ = ["nats_cluster", "nats_server", "postgres_database", "postgres_server", "voda"]

_LONGEST_S = 2.0
"""Of a test that is not marked slow."""

settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))  # noqa: TID251 - tests have no voda.config


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites the expected plans of the replay tests, and how much chaos there shall be."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")
    parser.addoption("--chaos", type=int, default=1, help="how many seeds the test of chaos is run with")


def pytest_collection_finish() -> None:
    """Spare the tests looks for garbage among what stays: modules, and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests of `make test` that ran for so long that they should be marked slow."""
    if config.getoption("markexpr") != "not slow":
        return
    calls = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    if long := [report for report in calls if report.duration > _LONGEST_S]:
        terminalreporter.section(f"longer than {_LONGEST_S:g} s: to be marked slow, unless the machine was busy")
        for report in sorted(long, key=lambda report: -report.duration):
            terminalreporter.line(f"{report.duration:6.1f} s  {report.nodeid}")


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests marked `virtual_time` on a loop whose clock jumps to the next timer."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether a replay test shall write its golden file instead of comparing with it."""
    return bool(request.config.getoption("--update-golden"))
