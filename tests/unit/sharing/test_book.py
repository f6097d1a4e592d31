"""The book of GPUs: what is left of each, which have room for a part, and which one gets it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import share, whole
from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest
from voda.domain.shares import GpuRemainder
from voda.sharing import OpenGpus


def left(milli: int, memory_mib: int = 16_000) -> GpuRemainder:
    return GpuRemainder(milli=milli, memory_mib=memory_mib, is_whole=milli == MILLI_PER_DEVICE)


def chosen(request: GpuRequest, *gpus: GpuRemainder) -> int | None:
    return next(OpenGpus(enumerate(gpus)).fitting(request), None)


def test_part_comes_to_the_fullest_gpu_that_has_room_and_to_a_whole_one_last() -> None:
    assert chosen(share(250), left(1_000), left(750), left(300), left(200)) == 2
    assert chosen(share(500), left(1_000), left(750), left(300)) == 1
    assert chosen(share(800), left(1_000), left(750)) == 0
    assert chosen(share(250), left(300, 9_000), left(300, 4_000)) == 1
    assert chosen(share(250), left(300), left(300)) == 0
    assert chosen(share(500), left(400)) is None


def test_part_with_memory_comes_where_so_much_is_left_and_compute_too() -> None:
    assert chosen(share(250, 8_000), left(300, 4_000), left(500, 9_000)) == 1
    # A part of memory alone needs some compute to work with.
    memory = GpuRequest(memory_mib=100)
    assert chosen(memory, left(0), left(1)) == 1
    nobody_has_any = GpuRemainder(milli=1_000, memory_mib=16_000, is_whole=True)
    memory_alone = GpuRemainder(milli=1_000, memory_mib=9_000, is_whole=False)
    assert chosen(memory, nobody_has_any, memory_alone) == 1


def test_gpu_whose_memory_has_shrunk_serves_those_who_ask_for_none() -> None:
    assert chosen(share(250), left(300, -1)) == 0
    assert chosen(share(250, 1), left(300, -1)) is None


def test_whole_gpu_is_for_whoever_asks_for_all_of_it() -> None:
    assert left(1_000).fits(whole(1))
    assert not left(999).fits(whole(1))
    assert left(1_000).less(whole(1)) == GpuRemainder(milli=0, memory_mib=0, is_whole=False)


@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.integers(0, 999), st.integers(1, 9)), max_size=12),
)
def test_parts_one_after_the_other_get_what_a_look_at_all_gpus_would_give_them(
    gpus: list[tuple[int, int]], parts: list[tuple[int, int]]
) -> None:
    there = dict(enumerate(left(milli, memory_mib) for milli, memory_mib in gpus))
    book = OpenGpus(there.items())
    for milli, memory_mib in parts:
        request = GpuRequest(milli=milli, memory_mib=memory_mib)
        fitting = [key for key, each in there.items() if each.fits(request)]
        expected = sorted(fitting, key=lambda key: (there[key].is_whole, there[key].milli, there[key].memory_mib, key))
        assert list(book.fitting(request)) == expected
        if expected:
            book.take(expected[0], request)
            there[expected[0]] = there[expected[0]].less(request)
        assert book.amounts() == tuple(sorted((each.is_whole, each.milli, each.memory_mib) for each in there.values()))
