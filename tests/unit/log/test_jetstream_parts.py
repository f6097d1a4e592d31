"""The parts of the JetStream log that need no server: addresses, names, messages that count or do not, segments."""

import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_fact, seal
from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.domain.rng import rng_at
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.jetstream import messages
from voda.log.jetstream import state as state_module
from voda.log.jetstream.index import IdIndex, IndexSegment
from voda.log.jetstream.marks import name_of, token
from voda.log.jetstream.messages import Group, OutgoingGroup, encode_group, group_at
from voda.log.jetstream.state import LogState
from voda.log.jetstream.transport.stream import is_led_by_most
from voda.log.jetstream.transport.url import NatsLocation, is_nats, parse_url
from voda.log.store import Base

# ---- addresses


def test_url_is_taken_apart() -> None:
    found = parse_url("tls://me%40x:p%2Fw@h1,[::1]:4333,h3:1/my-log?replicas=3&monitor=http://h1:8222,http://h3:8222/")
    assert found == NatsLocation(
        scheme="tls",
        hosts=("h1:4222", "[::1]:4333", "h3:1"),
        stream="my-log",
        user="me@x",
        password="p/w",
        replicas=3,
        monitor=("http://h1:8222", "http://h3:8222"),
    )
    assert found.servers == ["tls://h1:4222", "tls://[::1]:4333", "tls://h3:1"]
    assert found.place == "tls://me@x@h1:4222,[::1]:4333,h3:1/my-log"


def test_url_without_name_or_port_means_the_usual_ones() -> None:
    assert (parse_url("nats://h").place, parse_url("nats://h/").stream) == ("nats://h:4222/voda", "voda")


def test_name_without_password_is_a_token_and_not_shown() -> None:
    found = parse_url("nats://s3cret@h/voda")
    assert (found.token, found.user) == ("s3cret", "")
    assert "s3cret" not in found.place


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://", "is no URL of a log in NATS"),
        ("nats://h:0/voda", "expected host or host:port"),
        ("nats://h:70000/voda", "expected host or host:port"),
        ("nats://h1,,h2/voda", "expected host or host:port"),
        ("nats://h/a.b", "a stream's name is made of letters"),
        ("nats://h/a*", "a stream's name is made of letters"),
        ("nats://me:secret@h/voda?replicas=2", "expected replicas=1, 3 or 5, got '2'"),
        ("nats://me:secret@h/voda?replica=3", "the URL's option 'replica' is unknown"),
        ("nats://me:secret@h/voda?sync=never", "expected sync=always or sync=any"),
        ("nats://me:secret@h/voda?monitor=h:8222", "expected monitor=http://host:8222"),
    ],
)
def test_url_that_is_none_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_url(url)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("location", ["nats://h", "tls://h/x"])
def test_nats_is_known_by_its_scheme(location: str) -> None:
    assert is_nats(location)
    assert not is_nats(location.partition("://")[2])


# ---- names


@given(st.text())
def test_any_name_is_one_token_and_found_again(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    assert not set(token(name)) & set(". *>\t\r\n\0")
    assert token(name)
    assert name_of(token(name)) == name


# ---- messages


def rows(first: int, count: int, *, size: int = 0) -> Sequence[EventRow]:
    made: list[EventRow] = []
    for position in range(first, first + count):
        stream = f"job.{position}"
        sealed = seal(a_fact(f"e{position}", actor="x" * size), stream=stream, head=Head(), epoch=0, position=position)
        made.append((position, stream, 1, f"e{position}", "job.progressed", 0.0, sealed.body, sealed.hash))
    return made


def group(first: int, count: int, *, after: int, prev: bytes = b"") -> OutgoingGroup:
    return encode_group(rows(first, count), after=after, prev=prev, limit_bytes=100_000)


def found(messages: Sequence[bytes]) -> list[list[int]]:
    groups = [group_at(sequence, data) for sequence, data in enumerate(messages, 1)]
    return [[sealed.position for sealed in one.sealed] for one in groups if one]


def test_group_is_read_as_it_was_written() -> None:
    read = group_at(1, group(1, 3, after=0).data)
    assert read is not None
    assert [(sealed.position, sealed.is_intact) for sealed in read.sealed] == [(1, True), (2, True), (3, True)]


def test_group_larger_than_a_message_is_compressed_and_read_as_it_was_written() -> None:
    written = encode_group(rows(1, 12, size=10_000), after=0, prev=b"", limit_bytes=20_000)
    assert len(written.data) < 20_000
    read = group_at(1, written.data)
    assert read is not None
    assert [(sealed.position, sealed.is_intact) for sealed in read.sealed] == [(n, True) for n in range(1, 13)]


def test_compressed_message_that_is_cut_or_unpacks_to_more_than_a_group_may_be_is_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = zlib.compress(bytes(5_000))
    for cut in (data[:-3], data[:20]):
        with pytest.raises(LogDamaged, match="message 7 of the stream is no part of a voda log"):
            group_at(7, cut)
    monkeypatch.setattr(messages, "_MOST_BYTES", 4_000)
    with pytest.raises(LogDamaged, match="too large once unpacked"):
        group_at(7, data)


def test_message_planned_behind_another_does_not_count() -> None:
    first, lost, second = group(1, 1, after=0), group(1, 2, after=0), group(2, 1, after=2)
    assert found([first.data, lost.data, second.data]) == [[1], [2]]


@pytest.mark.parametrize("data", [b"hello", b"\x78hello"])
def test_message_that_is_none_of_a_log_is_damage(data: bytes) -> None:
    with pytest.raises(LogDamaged, match="message 1 of the stream is no part of a voda log"):
        group_at(1, data)


def test_message_of_a_newer_voda_is_refused() -> None:
    data = group(1, 1, after=0).data
    with pytest.raises(LogTooNew, match="format 2"):
        group_at(1, data.replace(b"\x97\x01", b"\x97\x02", 1))


def test_group_too_large_for_a_message_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too large to be appended at once"):
        encode_group(rows(1, 400), after=0, prev=b"", limit_bytes=6000)


def test_group_far_too_large_is_refused_without_all_of_it_being_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    class Counting:
        def __init__(self, level: int) -> None:
            self._packer = zlib.compressobj(level)

        def compress(self, data: memoryview) -> bytes:
            taken.append(len(data))
            return self._packer.compress(data)

    monkeypatch.setattr(messages, "zlib", SimpleNamespace(compressobj=Counting))
    noise = [(*row[:6], rng_at(row[0], "noise").randbytes(1_000_000), row[7]) for row in rows(1, 20)]
    with pytest.raises(InvalidInput, match="too large to be appended at once"):
        encode_group(noise, after=0, prev=b"", limit_bytes=100_000)
    assert sum(taken) < 1_000_000


# ---- state and segments


def counted(outgoing: OutgoingGroup) -> Group:
    read = group_at(outgoing.sequence, outgoing.data)
    assert read is not None
    return read


def test_state_folded_is_the_state_written() -> None:
    one, two = LogState.at(Base(), 1), LogState.at(Base(), 1)
    first = group(1, 12, after=0)
    second = group(13, 2, after=1, prev=first.name)
    heads = {row[1]: Head(1, row[7]) for row in rows(1, 14)}
    one.fold(counted(first))
    one.fold(counted(second))
    two.write(first, rows(1, 12), {})
    two.write(second, rows(13, 2), heads)
    assert (one.position, one.sequence, one.group, one.heads) == (two.position, two.sequence, two.group, two.heads)
    assert one == two
    assert one.recent.sequence_of(13) == 2


def test_group_that_follows_another_than_the_one_before_is_damage() -> None:
    state = LogState.at(Base(), 1)
    state.fold(counted(group(1, 1, after=0)))
    with pytest.raises(LogDamaged, match="position 2: this event was written after other events"):
        state.fold(counted(group(2, 1, after=1, prev=b"another")))


def test_state_of_a_checkpoint_goes_on_as_if_it_had_never_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SEGMENT_EVENTS", 10)
    state = LogState.at(Base(), 1)
    closed = state.fold(counted(first := group(1, 12, after=0)))
    assert closed is not None
    again = LogState.load("checkpoint", msgspec.msgpack.encode(state))
    for one in (state, again):
        one.fold(counted(group(13, 1, after=1, prev=first.name)))
    assert again == state
    assert (again.position, again.segments, again.ids) == (13, [(0, 1, 12)], {"e13": 13})
    assert closed.last == 12
    assert closed.sequence_of(7) == 1
    assert closed.positions_of("job.7", 0) == [7]


@given(st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=8), max_size=12))
def test_every_id_of_every_segment_is_a_candidate_where_it_stands(segments: list[list[str]]) -> None:
    index, after, stood = IdIndex(), 0, {}
    for number, names in enumerate(segments):
        distinct = [f"{number}.{name}".encode("utf-8", "replace").decode() for name in dict.fromkeys(names)]
        distinct = list(dict.fromkeys(distinct))
        segment = IndexSegment(after)
        segment.add(1, [("job.a", name) for name in distinct])
        index.add(segment)
        stood.update({name: after + 1 + offset for offset, name in enumerate(distinct)})
        after += len(distinct)
    assert {name: tuple(at) for name, at in index.candidates([*stood, "new"]).items()} == {
        name: (position,) for name, position in stood.items()
    }


def test_groups_of_recent_events_are_found() -> None:
    recent = IndexSegment(100)
    recent.add(7, [("job.a", "1"), ("job.b", "2")])
    recent.add(9, [("job.a", "3")])
    assert [recent.sequence_of(position) for position in (101, 102, 103)] == [7, 7, 9]
    assert recent.positions_of("job.a", 100) == [101, 103]
    assert recent.positions_of("job.a", 101) == [103]


def _other(active_s: float, *, offline: bool = False) -> dict[str, Any]:
    # Who has yet to take in what was written last is well all the same.
    return {"name": "n", "current": False, "offline": offline, "active": int(active_s * 1e9)}


@pytest.mark.parametrize(
    ("cluster", "is_led"),
    [
        (None, True),
        ({"leader": "n1"}, True),
        ({"leader": "n1", "replicas": [_other(0.2), _other(1.1)]}, True),
        ({"leader": "n1", "replicas": [_other(0.2), _other(8.0)]}, True),
        ({"leader": "n1", "replicas": [_other(3.9), _other(8.0)]}, True),
        ({"leader": "n1", "replicas": [_other(4.1), _other(8.0)]}, False),
        ({"leader": "n1", "replicas": [_other(8.0), _other(8.0)]}, False),
        ({"leader": "n1", "replicas": [_other(1.0, offline=True), _other(0.0)]}, False),
        ({"replicas": [_other(0.2), _other(0.2)]}, False),
    ],
)
def test_stream_is_led_by_who_has_lately_heard_of_most(cluster: dict[str, Any] | None, *, is_led: bool) -> None:
    assert is_led_by_most(cluster) == is_led
