"""Whether a Python has a library is asked of that Python, whatever the environment that the job would have."""

import sys

import pytest

from voda.programs.interpreter import lacks_library


@pytest.mark.parametrize(
    ("environment", "lacks"), [({}, True), ({"A": "\0"}, False), ({"A=B": "1"}, False), ({"A": "\ud800"}, False)]
)
def test_library_is_missing_only_where_a_python_says_so(environment: dict[str, str], lacks: bool) -> None:
    assert lacks_library(sys.executable, "no_such_library_anywhere", environment) is lacks
