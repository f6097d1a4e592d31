"""Public data sets for tests: found as voda finds them, and never silently missed by CI."""

import os
from pathlib import Path

import pytest

from voda.domain.errors import DataNotFound
from voda.simulator.data import DataSet, find_folder


def folder_or_skip(data_set: DataSet) -> Path:
    """Return the data set's folder; skip the test where it is absent, fail it where CI must have it."""
    try:
        return find_folder(data_set)
    except DataNotFound as absent:
        if os.environ.get("CI"):  # noqa: TID251 - tests have no voda.config
            raise
        pytest.skip(str(absent))
