"""A run on a real Kubernetes shares a long file among its processes."""

from collections import Counter

from tests.kube.parts_of_files import MOST, part_of_each


def test_long_file_is_shared_in_parts_of_tests_that_follow_each_other() -> None:
    parts = part_of_each([*(f"a.py::test[{number}]" for number in range(2 * MOST + 1)), "b.py::test"])
    assert Counter(parts.values()) == {"a.py 0": MOST, "a.py 1": MOST, "a.py 2": 1, "b.py 0": 1}
    assert list(parts.values()) == sorted(parts.values())
