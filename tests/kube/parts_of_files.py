"""How the processes of a test run share its files (`--dist loadfile`): each takes a part of one, then the next.

Rule: a long file is no chain that keeps one process busy when the others have ended, and the tests of a part run in
the order in which they were collected, so that a process needs few control planes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

MOST: Final = 10
"""Tests of a part."""


def part_of_each(tests: Iterable[str]) -> Mapping[str, str]:
    """Return test -> name of its part; the names of tests begin with their files."""
    parts: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for test in tests:
        file = test.partition("::")[0]
        parts[test] = f"{file} {counts[file] // MOST}"
        counts[file] += 1
    return parts


class PartsOfFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a process part after part."""

    def _split_scope(self, nodeid: str) -> str:
        return self._parts[nodeid]

    @cached_property
    def _parts(self) -> Mapping[str, str]:
        return part_of_each(self.collection or ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> PartsOfFiles | None:
    """Let PartsOfFiles share the tests where whole files would be shared."""
    return PartsOfFiles(config, log) if config.getoption("dist") == "loadfile" else None
