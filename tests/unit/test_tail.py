"""The end of a text is whole lines, as long as asked, however the text came."""

from hypothesis import given
from hypothesis import strategies as st

from voda.text import Tail

PIECES = st.lists(st.text(alphabet="ab\n", max_size=12).map(str.encode), max_size=12)


@given(pieces=PIECES, most_bytes=st.integers(0, 40))
def test_the_tail_is_the_longest_end_that_begins_a_line_and_fits(pieces: list[bytes], most_bytes: int) -> None:
    tail = Tail(most_bytes)
    for piece in pieces:
        tail.add(piece)
    text = b"".join(pieces)
    beginnings = [0, *(at + 1 for at, each in enumerate(text) if each == ord("\n"))]
    fitting = [at for at in beginnings if len(text) - at <= most_bytes]
    last_line = text[len(text) - most_bytes :] if not fitting else text[min(fitting) :]
    assert tail.text() == last_line
    assert (tail.size_bytes, tail.lines) == (len(text), text.count(b"\n"))


def test_no_more_is_kept_than_needed() -> None:
    tail = Tail(1000)
    for _ in range(10_000):
        tail.add(b"x" * 99 + b"\n")
    assert sum(map(len, tail._pieces)) <= 1100
    assert tail.text() == (b"x" * 99 + b"\n") * 10
