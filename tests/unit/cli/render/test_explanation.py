"""Claims about the sentences that explain a job."""

import pytest

from voda.cli.render.explanation import shortage_text
from voda.wire.explanations import ShortageView


def a_shortage(needs: int, capacity: int, free: int, *, jobs: int = 0, **fields: int) -> ShortageView:
    return ShortageView(
        needs_gpus=needs,
        wishes_gpus=needs,
        capacity_gpus=capacity,
        free_gpus=free,
        jobs_served=jobs,
        **{"largest_free_gpus": free, **fields},
    )


@pytest.mark.parametrize(
    ("shortage", "sentence"),
    [
        (a_shortage(1, 0, 0), "needs 1 GPU, and no node takes workers now"),
        (a_shortage(2, 4, 0, jobs=2), "needs 2 GPUs; of 4 in its pool, none is left; 2 other jobs have them all"),
        (a_shortage(2, 2, 1, jobs=1), "needs 2 GPUs; of 2 in its pool, 1 is left; 1 other job has the rest"),
        (
            a_shortage(4, 8, 3, largest_free_gpus=2, jobs=1),
            "needs 4 GPUs; of 8 in its pool, 3 are left (at most 2 on one node); 1 other job has the rest",
        ),
        (a_shortage(4, 2, 2), "needs 4 GPUs; of 2 in its pool, 2 are left"),
        (
            a_shortage(1, 0, 0, shared_gpus=2),
            "needs 1 GPU; 2 GPUs of its pool are shared, and no other takes workers now",
        ),
        (
            a_shortage(2, 1, 0, jobs=1, shared_gpus=1),
            "needs 2 GPUs; of 1 in its pool (1 more is shared), none is left; 1 other job has it",
        ),
    ],
)
def test_shortage_is_said_in_plain_words(shortage: ShortageView, sentence: str) -> None:
    assert shortage_text(shortage) == sentence
