"""Reasons of older logs are compared in the words of today."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.timetravel.former_words import in_words_of_today

FORMER = [
    ("keeps 1", "keeps 1 worker"),
    (
        "waits: 1200 jobs of higher priority have 4096 GPUs",
        "waits: 1,200 jobs of higher priority have 4,096 GPUs",
    ),
    (
        "keeps 2; stuck with 0 of 1 planned workers at work: x",
        "keeps 2 workers; stuck with 0 of 1 planned worker at work: x",
    ),
    ("waits: needs 2, 0 free", "waits: needs 2 GPUs, none is free"),
    ("preempted: needs 1, 1 free; n1 is drained", "preempted: needs 1 GPU, 1 is free; n1 is drained"),
    (
        "waits: 3 jobs of higher priority have 14 GPUs; needs 4, 2 free",
        "waits: 3 jobs of higher priority have 14 GPUs; needs 4 GPUs, 2 are free",
    ),
    (
        "starts on 1, 1 of 1 jobs share 4 GPUs, first submitted first",
        "starts with 1 worker, it is the only job for 4 GPUs",
    ),
    (
        "starts on 2, 1 of 3 jobs share 4 GPUs, least time left first",
        "starts with 2 workers, 1 of 3 jobs has 4 GPUs, least time left first",
    ),
    (
        "grown 2 -> 5: 2 of 2 jobs share 7 GPUs, first submitted first",
        "grown from 2 to 5 workers: both jobs share 7 GPUs, first submitted first",
    ),
    (
        "shrunk 3 -> 1: 3 of 3 jobs share 1 GPUs, first submitted first",
        "shrunk from 3 to 1 worker: all 3 jobs share 1 GPU, first submitted first",
    ),
    ("starts on 2, best total speedup 1.00 on 1 GPUs", "starts with 2 workers, best total speedup 1.00 on 1 GPU"),
    ("shrunk 2 -> 1: compacted, 1 jobs pending", "shrunk from 2 to 1 worker: compacted, while 1 job cannot start"),
    (
        "kept at 2: growing to 4 would save 40 s and cost 60 s",
        "kept at 2 workers: growing to 4 would save 40 s and cost 60 s",
    ),
    (
        "starts on 2: to grow other jobs by these GPUs would not pay",
        "starts with 2 workers: to grow other jobs by these GPUs would not pay",
    ),
    ("shrunk to 3 only: shrinking to 2 would free", "shrunk to 3 workers only: shrinking to 2 would free"),
    (
        "waits: needs room for 2 workers of 1 GPU, the nodes have it for 1",
        "waits: needs room for 2 workers of 1 GPU, and the nodes have room for 1",
    ),
    (
        "waits: needs room for 2 workers of 1 GPU, the nodes that take it have it for 1 (n2: full)",
        "waits: needs room for 2 workers of 1 GPU, and the nodes that take it have room for 1 (n2: full)",
    ),
    ("runs at 1: the free GPUs are too scattered", "runs with 1 worker: the free GPUs are too scattered"),
]


@pytest.mark.parametrize(("former", "present"), FORMER)
def test_former_reason_is_put_into_the_words_of_today(former: str, present: str) -> None:
    assert in_words_of_today(former) == present


@given(st.sampled_from([present for _, present in FORMER]) | st.text(max_size=80))
def test_reason_in_the_words_of_today_stays_as_it_is(reason: str) -> None:
    assert in_words_of_today(in_words_of_today(reason)) == in_words_of_today(reason)


@pytest.mark.parametrize(
    "present", [present for _, present in FORMER] + ["halted by ada: keeps 2", "waits: after train"]
)
def test_present_reason_is_not_changed(present: str) -> None:
    assert in_words_of_today(present) == present
