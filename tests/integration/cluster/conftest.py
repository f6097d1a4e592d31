"""The folder of jobs that most tests of this folder use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.local_jobs import Ground, a_ground


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with a_ground(tmp_path) as ground:
        yield ground
