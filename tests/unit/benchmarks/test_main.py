"""Claims about how benchmarks are chosen."""

import pytest

from benchmarks.__main__ import main


def test_benchmark_of_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="there is no benchmark nope: expected some of allocate, append"):
        main(["nope"])
