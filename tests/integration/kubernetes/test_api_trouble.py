"""An API server that is busy, slow, broken or none at all is told apart, in a sentence, and never hammered."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from tests.kube.misbehaving import (
    TOKEN,
    Misbehaving,
    Speaking,
    line,
    listed,
    refused,
    said,
    silence,
    thing,
    watched,
)
from tests.telemetry import RecordingTelemetry
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict, Gone, NotServed, Rejected, Throttled, Unreachable
from voda.kubernetes_client.metadata import PartialObject
from voda.metrics import KUBERNETES_REQUESTS

PATH = "/api/v1/things"


async def test_a_busy_server_is_asked_again_after_as_long_as_it_says() -> None:
    async with (
        Misbehaving(get=[refused(429, Retry_After="1"), said(thing("a", 1))]) as server,
        Speaking(server.url) as api,
    ):
        began = time.perf_counter()
        assert await api.get(f"{PATH}/a", PartialObject) is not None
        assert time.perf_counter() - began >= 1.0
    assert server.asked["get"] == 2


async def test_a_server_that_stays_busy_is_asked_a_few_times_only() -> None:
    async with Misbehaving(create=[refused(429, "slow down", Retry_After="0")]) as server, Speaking(server.url) as api:
        with pytest.raises(Throttled, match="cannot create /api/v1/things: the API server answers 429 Why: slow down"):
            await api.create(PATH, {}, PartialObject)
    assert server.asked["create"] == 4


async def test_a_server_that_asks_for_more_patience_than_there_is_is_left_to_the_caller() -> None:
    async with Misbehaving(get=[refused(503, Retry_After="120")]) as server, Speaking(server.url) as api:
        with pytest.raises(Throttled) as busy:
            await api.get(f"{PATH}/a", PartialObject)
    assert busy.value.retry_after_s == 120.0
    assert server.asked["get"] == 1


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_broken_server_is_not_asked_again_at_once(code: int) -> None:
    async with Misbehaving(patch=[refused(code, "etcd\nis gone.")]) as server, Speaking(server.url) as api:
        with pytest.raises(
            ClusterUnavailable, match=f"^cannot patch {PATH}/a: the API server answers {code} Why: etcd is gone$"
        ):
            await api.patch(f"{PATH}/a", {}, PartialObject)
    assert server.asked["patch"] == 1


async def test_a_page_that_some_proxy_wrote_is_told_as_it_is() -> None:
    page = b"<html>\n<title>Bad gateway</title>" + b"x" * 100_000
    async with Misbehaving(get=[said(page, 502), said(page)]) as server, Speaking(server.url) as api:
        with pytest.raises(ClusterUnavailable, match="answers 502: <html> <title>Bad gateway") as bad:
            await api.get(f"{PATH}/a", PartialObject)
        assert len(str(bad.value)) < 600
        with pytest.raises(ClusterUnavailable, match="not what an API server says"):
            await api.get(f"{PATH}/a", PartialObject)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'{"metadata": 7}', b'{"items": {}}', b"{" * 10_000, b"\xff\xfe"]
)
async def test_a_list_that_is_none_is_told(body: bytes) -> None:
    async with Misbehaving(list=[said(body)]) as server, Speaking(server.url) as api:
        with pytest.raises(ClusterUnavailable, match=f"^cannot list {PATH}: the answer is not what an API server says"):
            await api.list(PATH, PartialObject)


async def test_a_list_whose_next_page_is_too_late_is_gone() -> None:
    answers = [listed(5, thing("a", 1), more="next"), refused(410, "the continue parameter is too old")]
    async with Misbehaving(list=answers) as server, Speaking(server.url) as api:
        with pytest.raises(Gone):
            await api.list(PATH, PartialObject)


async def test_a_list_whose_pages_are_too_large_is_asked_for_in_smaller_ones() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        padding = b" " * (65 << 20) if request.query["limit"] == "500" else b""
        return await said(b'{"metadata": {"resourceVersion": "5"}, "items": []}' + padding)(request)

    async with Misbehaving(list=[answer]) as server, Speaking(server.url) as api:
        assert (await api.list(PATH, PartialObject)).resource_version == "5"
    assert [query["limit"] for query in server.requests] == ["500", "62"]


async def test_an_object_that_reads_like_no_job_is_left_out_and_hides_no_other() -> None:
    odd = {**thing("odd", 2, namespace="team"), "spec": {"runPolicy": {"suspend": "perhaps"}}}
    nulls = {**thing("nulls", 3), "spec": {"runPolicy": None}, "status": {"conditions": None}}
    async with Misbehaving(list=[listed(5, thing("a", 1), odd, nulls)]) as server, Speaking(server.url) as api:
        found = await api.list(PATH, JobObject)
    assert [each.metadata.name for each in found.items] == ["a", "nulls"]
    assert found.unread == ("team/odd",)


async def test_a_watch_leaves_out_what_it_cannot_read_and_goes_on() -> None:
    odd = {**thing("odd", 2), "spec": 7}
    events = watched(line("ADDED", odd), b"\n", line("ADDED", thing("a", 3)))
    async with Misbehaving(watch=[events]) as server, Speaking(server.url) as api:
        assert [change.object.metadata.name async for change in api.watch(PATH, JobObject, after="1")] == ["a"]


async def test_a_watch_whose_version_went_is_gone_be_it_told_before_or_within() -> None:
    within = watched(line("ADDED", thing("a", 3)), line("ERROR", {"code": 410, "message": "too old"}))
    async with Misbehaving(watch=[refused(410), within]) as server, Speaking(server.url) as api:
        for expected in ([], ["a"]):
            seen, failed = await _watched(api)
            assert (seen, type(failed)) == (expected, Gone)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_watch_cut_in_the_middle_of_an_event_yields_the_whole_ones_before(cut: bool) -> None:
    events = watched(line("ADDED", thing("a", 3)), line("ADDED", thing("b", 4))[:20], cut=cut)
    async with Misbehaving(watch=[events]) as server, Speaking(server.url) as api:
        seen, failed = await _watched(api)
    assert seen == ["a"]
    assert isinstance(failed, ClusterUnavailable)


@pytest.mark.parametrize(
    "text",
    [
        b"what?\n",
        b"{}\n",
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"NEW","object":{"metadata":{"resourceVersion":"1"}}}\n',
    ],
)
async def test_a_watch_that_says_what_no_server_says_is_told(text: bytes) -> None:
    async with Misbehaving(watch=[watched(text)]) as server, Speaking(server.url) as api:
        _, failed = await _watched(api)
    assert "not what an API server says" in str(failed)


async def test_a_watch_takes_lines_in_whatever_pieces_they_come() -> None:
    large = line("MODIFIED", {**thing("large", 4), "data": "x" * 3_000_000})
    text = line("ADDED", thing("a", 3)) + large + line("BOOKMARK", thing("", 9))
    pieces = [text[:10], text[10:95], *(text[at : at + 50_001] for at in range(95, len(text), 50_001))]
    async with Misbehaving(watch=[watched(*pieces)]) as server, Speaking(server.url) as api:
        seen = [(each.type, each.resource_version) async for each in api.watch(PATH, PartialObject, after="1")]
    assert seen == [("ADDED", "3"), ("MODIFIED", "4"), ("BOOKMARK", "9")]


async def test_a_watch_whose_line_never_ends_is_given_up() -> None:
    async with Misbehaving(watch=[watched(*[b"x" * (1 << 20)] * 20)]) as server, Speaking(server.url) as api:
        _, failed = await _watched(api)
    assert "more than 16 MiB" in str(failed)


async def test_a_watch_whose_peer_falls_silent_for_longer_than_agreed_is_given_up() -> None:
    events = watched(line("ADDED", thing("a", 3)), 60.0)
    async with Misbehaving(watch=[events]) as server, Speaking(server.url, timeout_s=1.5) as api:
        seen, failed = await _watched(api, {"timeoutSeconds": "1"})
    assert seen == ["a"]
    assert "it takes too long" in str(failed)


async def test_a_server_that_never_answers_is_waited_for_no_longer_than_allowed() -> None:
    async with Misbehaving(get=[silence], watch=[silence]) as server, Speaking(server.url, timeout_s=1.5) as api:
        with pytest.raises(ClusterUnavailable, match="the API server does not answer \\(it takes too long\\)"):
            await api.get(f"{PATH}/a", PartialObject)
        _, failed = await _watched(api)
        assert "it takes too long" in str(failed)


async def test_a_body_that_stops_in_the_middle_is_waited_for_no_longer_than_allowed() -> None:
    async with Misbehaving(get=[watched(b'{"metadata"', 60.0)]) as server, Speaking(server.url, timeout_s=1.5) as api:
        with pytest.raises(ClusterUnavailable, match="broke off"):
            await api.get(f"{PATH}/a", PartialObject)


async def test_a_peer_that_accepts_and_closes_without_a_word_is_no_server() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as peer:
        url = f"http://127.0.0.1:{peer.sockets[0].getsockname()[1]}"
        async with Speaking(url) as api:
            with pytest.raises(ClusterUnavailable, match="it closed the connection"):
                await api.create(PATH, {}, PartialObject)


async def test_where_nothing_listens_a_few_tries_are_made() -> None:
    async with Misbehaving() as server:
        url = server.url
    telemetry = RecordingTelemetry()
    async with Speaking(url, telemetry=telemetry) as api:
        with pytest.raises(Unreachable, match="cannot create /api/v1/things: the API server does not answer"):
            await api.create(PATH, {}, PartialObject)
    assert telemetry.counts(KUBERNETES_REQUESTS) == [("create", "none")] * 4


async def test_no_redirect_is_followed_for_the_token_would_go_with_it() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await refused(307, Location=f"{other.url}/")(request)

    async with (
        Misbehaving(get=[said({})]) as other,
        Misbehaving(get=[answer]) as server,
        Speaking(server.url) as api,
    ):
        with pytest.raises(Rejected, match="307"):
            await api.get(f"{PATH}/a", PartialObject)
    assert not other.asked


@pytest.mark.parametrize("name", ["..", ".", "a/../../nodes/b", "a?x=1", "a#b", "%2e%2e", "a b", "ä", "a\r\nb", ""])
async def test_a_name_that_leads_elsewhere_is_not_asked_for(name: str) -> None:
    async with Misbehaving(delete=[said({})]) as server, Speaking(server.url) as api:
        with pytest.raises(Rejected, match="it is no path of an object"):
            await api.delete(f"{PATH}/{name}")
    assert not server.asked


@pytest.mark.parametrize("code", [400, 401, 403, 409, 422, 429, 500])
async def test_no_sentence_holds_the_token(code: int) -> None:
    async with Misbehaving(create=[refused(code, Retry_After="0")]) as server, Speaking(server.url) as api:
        with pytest.raises((ClusterUnavailable, Rejected, Conflict)) as failed:
            await api.create(PATH, {}, PartialObject)
    assert TOKEN not in f"{failed.value!r} {failed.value.__cause__!r}"


async def test_a_404_is_of_an_object_only_where_it_names_one() -> None:
    answers = [refused(404, about="a"), refused(404), said(b"404 page not found", 404)]
    async with Misbehaving(get=answers) as server, Speaking(server.url) as api:
        assert await api.get(f"{PATH}/a", PartialObject) is None
        for _ in range(2):
            with pytest.raises(NotServed):
                await api.get(f"{PATH}/a", PartialObject)


async def _watched(api: Api, query: Mapping[str, Any] | None = None) -> tuple[list[str], BaseException | None]:
    """Return the names that a watch brought, and what ended it."""
    seen: list[str] = []
    try:
        async for change in api.watch(PATH, PartialObject, after="1", query=query):
            seen.append(change.object.metadata.name)
    except ClusterUnavailable as failed:
        return seen, failed
    return seen, None
