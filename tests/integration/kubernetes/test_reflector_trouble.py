"""What a watch loses is healed and counted, what it merely brings late is not, and no server is hammered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kube.misbehaving import Misbehaving, Speaking, line, listed, refused, said, silence, thing, watched
from tests.telemetry import RecordingTelemetry
from tests.waiting import until
from voda.clock import SystemClock
from voda.cluster.kubernetes.objects import JobObject
from voda.kubernetes_client.metadata import PartialObject
from voda.kubernetes_client.reflector import Reflector
from voda.metrics import LAST_MIRROR_DRIFT

PATH = "/apis/kubeflow.org/v1/things"
QUIET = watched(3600.0)


async def test_a_change_that_the_watch_missed_is_healed_by_a_list_and_counted() -> None:
    lists = [listed(5, thing("a", 1), thing("gone", 2)), listed(9, thing("a", 7), thing("new", 8))]
    async with Misbehaving(list=lists, watch=[QUIET]) as server, _following(server, lag_s=0.1) as (kept, told, drift):
        await until(lambda: server.asked["watch"] == 1)
        await kept.relist()
        assert _versions(kept) == {"a": "7", "new": "8"}
        await kept.relist()
        assert drift.settings(LAST_MIRROR_DRIFT) == [3, 0]
        assert told == ["+a1", "+gone2", "-gone2", "a1>7", "+new8"]
        await until(lambda: server.asked["watch"] == 2)
        # The watch goes on from the list that healed.
        assert server.requests[-2]["resourceVersion"] == "9"


async def test_a_change_that_the_watch_brings_a_little_later_than_the_list_is_no_drift() -> None:
    later = asyncio.Event()
    lists = [listed(5, thing("a", 1)), listed(9, thing("a", 7), thing("b", 8))]
    events = watched(
        later, line("MODIFIED", thing("a", 6)), line("MODIFIED", thing("a", 7)), line("ADDED", thing("b", 8)), 3600.0
    )
    async with Misbehaving(list=lists, watch=[events]) as server, _following(server, lag_s=30.0) as (kept, told, drift):
        relisting = asyncio.create_task(kept.relist())
        await until(lambda: server.asked["list"] == 2)
        later.set()
        await relisting
        assert not any(drift.settings(LAST_MIRROR_DRIFT))
        assert told == ["+a1", "a1>6", "a6>7", "+b8"]
        assert server.asked["watch"] == 1


async def test_a_change_that_the_watch_brought_while_an_older_list_was_on_its_way_stays() -> None:
    on_its_way, brought = asyncio.Event(), asyncio.Event()

    async def late(request: Any) -> Any:
        on_its_way.set()
        await brought.wait()
        return await listed(5, thing("a", 1), thing("dead", 2))(request)

    events = watched(on_its_way, line("MODIFIED", thing("a", 6)), line("DELETED", thing("dead", 7)), 3600.0)
    lists = [listed(5, thing("a", 1), thing("dead", 2)), late]
    async with Misbehaving(list=lists, watch=[events]) as server, _following(server, lag_s=0.1) as (kept, told, drift):
        relisting = asyncio.create_task(kept.relist())
        await until(lambda: _versions(kept) == {"a": "6"})
        brought.set()
        await relisting
        assert _versions(kept) == {"a": "6"}
        assert (sum(drift.settings(LAST_MIRROR_DRIFT)), told) == (0, ["+a1", "+dead2", "a1>6", "-dead2"])


async def test_a_list_finds_what_happens_while_the_watch_is_down_and_calls_it_no_drift() -> None:
    lists = [listed(5, thing("a", 1)), listed(9, thing("a", 7))]
    watches = [watched(line("BOOKMARK", thing("", 6))), refused(503, Retry_After="3600")]
    async with Misbehaving(list=lists, watch=watches) as server, _following(server, lag_s=0.1) as (kept, _, drift):
        await until(lambda: bool(kept.failure))
        relisting = asyncio.create_task(kept.relist())
        await until(lambda: server.asked["list"] == 2)
        relisting.cancel()
        await asyncio.wait([relisting])
    assert not any(drift.settings(LAST_MIRROR_DRIFT))


async def test_a_version_that_is_gone_is_listed_again_wherever_it_is_told() -> None:
    told_within = watched(line("ADDED", thing("b", 6)), line("ERROR", {"code": 410, "message": "too old"}))
    lists = [listed(5), listed(7, thing("b", 6)), refused(410), listed(9, thing("c", 8))]
    watches = [told_within, refused(410), QUIET]
    async with Misbehaving(list=lists, watch=watches) as server, _following(server) as (kept, told, _):
        await until(lambda: "c" in kept.objects and not kept.failure)
        assert told == ["+b6", "-b6", "+c8"]
        assert [each.get("resourceVersion") for each in server.requests] == [None, "5", None, "7", None, None, "9"]


async def test_a_watch_that_was_cut_goes_on_from_the_last_whole_event_without_a_list() -> None:
    events = watched(
        line("ADDED", thing("a", 6)), line("BOOKMARK", thing("", 8)), line("ADDED", thing("b", 9))[:30], cut=True
    )
    async with Misbehaving(list=[listed(5)], watch=[events, QUIET]) as server, _following(server) as (kept, _, _):
        await until(lambda: server.asked["watch"] == 2)
        assert server.requests[-1]["resourceVersion"] == "8"
        await until(lambda: not kept.failure)
        assert server.asked["list"] == 1


async def test_a_server_that_refuses_a_version_again_and_again_is_listed_anew() -> None:
    watches = [refused(504, "Too large resource version")] * 3 + [QUIET]
    lists = [listed(500), listed(9, thing("restored", 8))]
    async with Misbehaving(list=lists, watch=watches) as server, _following(server) as (kept, _, _):
        await until(lambda: "restored" in kept.objects and not kept.failure)
        assert server.requests[-1]["resourceVersion"] == "9"


async def test_a_server_that_ends_every_watch_at_once_is_asked_less_and_less_often() -> None:
    async with Misbehaving(list=[listed(5)], watch=[watched()]) as server, _following(server) as (kept, _, _):
        await until(lambda: "ends the watch at once" in kept.failure)
        await asyncio.sleep(1.0)
        assert server.asked["watch"] + server.asked["list"] < 10


async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks() -> None:
    lists = [refused(429, Retry_After="3600"), listed(5)]
    async with Misbehaving(list=lists, watch=[QUIET]) as server, Speaking(server.url) as api:
        kept = Reflector(api, PATH, PartialObject, changed=lambda *_: None, clock=SystemClock())
        task = asyncio.create_task(kept.run())
        await until(lambda: "429" in kept.failure)
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait([task])
    assert server.asked["list"] == 1


async def test_objects_of_a_kind_that_a_starting_server_does_not_know_yet_are_not_taken_for_deleted() -> None:
    lists = [listed(5, thing("a", 1)), refused(404), said(b"404 page not found", 404), listed(9, thing("a", 1))]
    watches = [watched(line("BOOKMARK", thing("", 6)), cut=True), refused(404), QUIET]
    async with Misbehaving(list=lists, watch=watches) as server, _following(server) as (kept, told, _):
        await until(lambda: server.asked["watch"] == 3 and not kept.failure)
        assert told == ["+a1"]


async def test_objects_of_a_kind_that_stays_away_are_gone_in_the_end() -> None:
    lists = [listed(5, thing("a", 1)), refused(404)]
    watches = [watched(line("BOOKMARK", thing("", 6)), cut=True), refused(404)]
    async with (
        Misbehaving(list=lists, watch=watches) as server,
        _following(server, absent_after_s=0.5) as (kept, told, _),
    ):
        await until(lambda: not kept.objects)
        assert told == ["+a1", "-a1"]
        assert "404" in kept.failure


async def test_an_object_that_can_no_longer_be_read_stays_as_it_was() -> None:
    odd = {**thing("a", 7), "spec": "odd"}
    async with (
        Misbehaving(list=[listed(5, thing("a", 1)), listed(9, odd)], watch=[QUIET]) as server,
        _following(server, kind=JobObject, lag_s=0.1) as (kept, told, _),
    ):
        await kept.relist()
        assert _versions(kept) == {"a": "1"}
        assert told == ["+a1"]


async def test_a_watch_that_nobody_answers_is_given_up_and_tried_again() -> None:
    async with (
        Misbehaving(list=[listed(5)], watch=[silence, QUIET]) as server,
        _following(server, timeout_s=1.5) as (kept, _, _),
    ):
        await until(lambda: server.asked["watch"] >= 2 and not kept.failure)


async def test_a_list_is_asked_for_every_so_often() -> None:
    lists = [listed(5, thing("a", 1)), refused(500), listed(9, thing("a", 1), thing("missed", 8))]
    async with (
        Misbehaving(list=lists, watch=[QUIET]) as server,
        _following(server, relist_s=0.05, lag_s=0.05) as (kept, _, drift),
    ):
        await until(lambda: sum(drift.settings(LAST_MIRROR_DRIFT)) == 1 and "missed" in kept.objects)


@asynccontextmanager
async def _following(
    server: Misbehaving, *, kind: Any = PartialObject, timeout_s: float = 15.0, **options: Any
) -> AsyncIterator[tuple[Reflector[Any], list[str], RecordingTelemetry]]:
    """Keep what a server shows, once it is synced; tell what changed in short: +name1, name1>2, -name2."""
    told: list[str] = []
    telemetry = RecordingTelemetry()

    def tell(before: Any, now: Any) -> None:
        name = (now or before).metadata.name
        old, new = ("" if each is None else each.metadata.resource_version for each in (before, now))
        told.append(f"{name}{old}>{new}" if old and new else f"{'+' if new else '-'}{name}{new or old}")

    async with Speaking(server.url, timeout_s=timeout_s) as api:
        kept = Reflector(api, PATH, kind, changed=tell, clock=SystemClock(), telemetry=telemetry, **options)
        task = asyncio.create_task(kept.run())
        try:
            async with asyncio.timeout(60):
                await kept.synced()
            yield kept, told, telemetry
        finally:
            task.cancel()
            await asyncio.wait([task])


def _versions(kept: Reflector[Any]) -> dict[str, str]:
    return {key: each.metadata.resource_version for key, each in kept.objects.items()}
