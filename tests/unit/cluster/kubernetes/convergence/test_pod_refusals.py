"""What an Event says of a pod that could not be made, without what changes with every attempt."""

import pytest

from voda.cluster.kubernetes.convergence.pod_refusals import refusal_text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'Error creating: pods "a-0-x7f2k" is forbidden: exceeded quota: few, requested: requests.nvidia.com/gpu=1,'
            " used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1",
            "exceeded quota: few, requested: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1",
        ),
        (
            'Error creating: pods "a-1-c" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        ("something\x07 else\nand more", "something else"),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_refusal_of_a_pod_is_one_sentence_that_stays_the_same(message: str, expected: str) -> None:
    assert refusal_text(message) == expected
