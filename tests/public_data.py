"""Public data sets for tests: found as voda finds them; what is skipped for want of them is listed by pytest."""

from pathlib import Path

import pytest

from voda.domain.errors import DataNotFound
from voda.simulator.data import DataSet, find_folder


def folder_or_skip(data_set: DataSet) -> Path:
    """Return the data set's folder, or skip the test and say where the data are to be had."""
    try:
        return find_folder(data_set)
    except DataNotFound as absent:
        pytest.skip(str(absent))
