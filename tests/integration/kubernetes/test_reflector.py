"""A collection is kept as the real API server has it, through churn and through the server's own restarts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.control_plane import ControlPlane, running
from tests.telemetry import RecordingTelemetry
from tests.waiting import until, until_it_is
from voda.clock import SystemClock
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import PartialObject
from voda.kubernetes_client.reflector import Reflector
from voda.metrics import LAST_MIRROR_DRIFT

MAPS = "/api/v1/namespaces/default/configmaps"
GADGETS = "/apis/tests.voda.dev/v1/gadgets"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that may be stopped."""
    made = running(controllers=False)
    yield made
    made.stop()


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    made = await Api.open(plane.kubeconfig())

    async def is_there() -> bool:
        return await made.get("/api/v1/namespaces/default", PartialObject) is not None

    # The server makes it a moment after it is ready.
    await until_it_is(is_there)
    yield made
    await made.close()


async def test_what_is_made_changed_and_deleted_is_seen_in_its_order(api: Api) -> None:
    async with _following(api) as (kept, told):
        made = await _make(api, "one")
        changed = await api.patch(f"{MAPS}/one", {"data": {"key": "value"}}, PartialObject)
        await api.delete(f"{MAPS}/one")
        await until(lambda: "default/one" not in kept.objects and len(told) >= 3)
    assert changed is not None
    assert told[-3:-1] == [(None, made), (made, changed)]
    assert told[-1] == (changed, None)


@pytest.mark.slow
async def test_an_object_made_anew_under_its_old_name_is_told_as_gone_and_there(api: Api, plane: ControlPlane) -> None:
    old = await _make(api, "twin")
    async with _following(api) as (kept, told):
        await asyncio.to_thread(plane.stop, "kube-apiserver")
        await until(lambda: bool(kept.failure))
        await asyncio.to_thread(plane.start_api_server)
        await api.delete(f"{MAPS}/twin")
        new = await _make(api, "twin")
        await until(lambda: kept.objects.get("default/twin") == new)
    assert [each for each in told if _is_named("twin", each)] == [(None, old), (old, None), (None, new)]
    await api.delete(f"{MAPS}/twin")


@pytest.mark.slow
async def test_after_a_restart_of_the_server_it_follows_again_and_has_missed_nothing(
    api: Api, plane: ControlPlane
) -> None:
    await _make(api, "before")
    async with _following(api) as (kept, _):
        await asyncio.to_thread(plane.stop, "kube-apiserver")
        await until(lambda: bool(kept.failure))
        assert "default/before" in kept.objects
        await asyncio.to_thread(plane.start_api_server)
        await api.delete(f"{MAPS}/before")
        await _make(api, "after")
        await until(lambda: not kept.failure)
        await until(lambda: "default/after" in kept.objects and "default/before" not in kept.objects)
    await api.delete(f"{MAPS}/after")


async def test_lists_beside_the_watch_amid_churn_heal_nothing_and_take_nothing_back(api: Api) -> None:
    telemetry = RecordingTelemetry()
    async with _following(api, telemetry=telemetry, lag_s=10.0) as (kept, told):
        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(_churn(api, f"churned-{number}"))
            for _ in range(5):
                await kept.relist()
        await until(lambda: not any("churned" in key for key in kept.objects))
    assert not any(telemetry.settings(LAST_MIRROR_DRIFT))
    for number in range(8):
        seen = [now for before, now in told if _is_named(f"churned-{number}", (before, now))]
        versions = [int(now.metadata.resource_version) for now in seen if now is not None]
        assert len(versions) == 20
        assert versions == sorted(set(versions))


async def test_a_kind_that_is_not_there_is_empty_after_a_while_and_followed_once_it_comes(api: Api) -> None:
    async with _following(api, path=GADGETS, absent_after_s=0.5) as (kept, _):
        assert not kept.objects
        assert "404" in kept.failure
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(), dict)
        body = {"apiVersion": "tests.voda.dev/v1", "kind": "Gadget", "metadata": {"name": "first"}}
        await until(lambda: not kept.failure)
        await api.create("/apis/tests.voda.dev/v1/namespaces/default/gadgets", body, dict)
        await until(lambda: set(kept.objects) == {"default/first"})


Told = list[tuple[PartialObject | None, PartialObject | None]]


@asynccontextmanager
async def _following(
    api: Api, path: str = MAPS, **options: Any
) -> AsyncIterator[tuple[Reflector[PartialObject], Told]]:
    """Keep a collection, once it is synced, for as long as the block lasts."""
    told: Told = []
    kept = Reflector(api, path, PartialObject, changed=lambda *pair: told.append(pair), clock=SystemClock(), **options)
    running_it = asyncio.create_task(kept.run())
    try:
        async with asyncio.timeout(60):
            await kept.synced()
        yield kept, told
    finally:
        running_it.cancel()
        await asyncio.wait([running_it])


async def _make(api: Api, name: str) -> PartialObject:
    return await api.create(MAPS, {"metadata": {"name": name}}, PartialObject)


async def _churn(api: Api, name: str) -> None:
    for _ in range(4):
        await _make(api, name)
        for number in range(4):
            await api.patch(f"{MAPS}/{name}", {"data": {"number": str(number)}}, PartialObject)
        await api.delete(f"{MAPS}/{name}")


def _is_named(name: str, pair: tuple[PartialObject | None, PartialObject | None]) -> bool:
    return any(each is not None and each.metadata.name == name for each in pair)


def _definition() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "tests.voda.dev", "names": names, "scope": "Namespaced", "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": "gadgets.tests.voda.dev"}, "spec": spec}
