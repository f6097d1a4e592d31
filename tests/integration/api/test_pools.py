"""Pools and their settings over HTTP."""

import asyncio
from pathlib import Path

import pytest

from tests.builders import a_node, a_spec
from tests.service import Service, a_service
from tests.unit.projections.test_shares import GPU, a_share, an_assignment
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.events.envelope import Event
from voda.events.types import (
    JobSubmitted,
    NodeDrainRequested,
    NodeJoined,
    SettingsChanged,
    WorkerStarted,
)
from voda.wire.base import Problem
from voda.wire.pools import PoolList, PoolView

SETTINGS = "/api/v1/pools/default/settings"


async def settings_events(service: Service) -> list[Event]:
    return list(await service.backend.journal.store.read(0, 100, stream="settings.default"))


async def test_pools_when_listed_then_show_gpus_jobs_and_settings() -> None:
    async with a_service(nodes={"n1": 4, "n2": 4}, pools=("default", "v100")) as service:
        await service.happens(JobSubmitted(spec=a_spec("a", max_replicas=3)))
        await service.happens(JobSubmitted(spec=a_spec("b")))
        await service.happens(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n2"}))
        default, empty = (await service.ask("GET", "/api/v1/pools")).as_a(PoolList).items
        assert (default.name, default.nodes, default.gpus, default.used_gpus) == ("default", 2, 8, 3)
        assert (default.running, default.waiting, default.settings.policy) == (1, 1, "elastic-fifo")
        assert (empty.name, empty.nodes, empty.gpus, empty.plan) == ("v100", 0, 0, 0)
        assert service.backend.journal.view.cluster.pools() == ("default",), "to ask is not to change"


async def test_pool_with_shared_gpus_tells_them_apart_from_those_that_plans_hand_out() -> None:
    async with a_service(nodes={"n0": 4}) as service:
        await service.happens(NodeJoined(node=a_node("n1", gpus=2, devices=(GPU,) * 2)))
        await service.happens(an_assignment("u1", a_share(600)))
        (pool,) = (await service.ask("GET", "/api/v1/pools")).as_a(PoolList).items
        assert (pool.gpus, pool.shared_gpus, pool.used_gpus) == (5, 1, 0)
        await service.happens(NodeDrainRequested(name="n1", reason=Requested(text="new fan")))
        (pool,) = (await service.ask("GET", "/api/v1/pools")).as_a(PoolList).items
        assert (pool.gpus, pool.shared_gpus) == (4, 0)


async def test_pool_when_nothing_changed_then_is_not_sent_again() -> None:
    async with a_service() as service:
        answer = await service.ask("GET", "/api/v1/pools/default")
        again = await service.ask("GET", "/api/v1/pools/default", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        await service.happens(JobSubmitted(spec=a_spec("a")))
        again = await service.ask("GET", "/api/v1/pools/default", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.as_a(PoolView).waiting) == (200, 1)


async def test_settings_when_changed_then_are_in_force_and_in_the_log() -> None:
    async with a_service() as service:
        answer = await service.ask(
            "PATCH", SETTINGS, body={"policy": "tiresias", "ratelimit_s": 5, "span_penalty": 0.2}
        )
        assert answer.status == 200
        settings = answer.as_a(Settings)
        assert (settings.policy, settings.ratelimit_s, settings.span_penalty) == ("tiresias", 5.0, 0.2)
        assert (await service.ask("GET", SETTINGS)).as_a(Settings) == settings
        assert [event.data for event in await settings_events(service)] == [
            SettingsChanged(pool="default", settings={"policy": "tiresias", "ratelimit_s": 5.0, "span_penalty": 0.2})
        ]


async def test_parameters_of_a_policy_when_changed_then_only_what_differs_is_recorded() -> None:
    async with a_service() as service:
        change = {"parameters": {"tiresias": {"demote_gpu_s": 7200, "promote_knob": 8}, "elastic-tiresias": {}}}
        settings = (await service.ask("PATCH", SETTINGS, body=change)).as_a(Settings)
        assert settings.parameters["tiresias"] == {"demote_gpu_s": 7200.0, "promote_knob": 8.0}
        assert settings.parameters["elastic-tiresias"]["demote_gpu_s"] == 3600.0
        assert [event.data for event in await settings_events(service)] == [
            SettingsChanged(pool="default", settings={"parameters": {"tiresias": {"demote_gpu_s": 7200.0}}})
        ]


async def test_settings_when_they_are_so_already_then_nothing_is_recorded() -> None:
    async with a_service() as service:
        answer = await service.ask("PATCH", SETTINGS, body={"policy": "elastic-fifo", "ratelimit_s": 30})
        assert (answer.status, await settings_events(service)) == (200, [])


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        ({"policy": "tiresas"}, "policy", "Did you mean 'tiresias'"),
        ({"placer": "nowhere"}, "placer", "packed"),
        ({"ratelimit_s": -1}, "ratelimit_s", "0"),
        ({"ratelimit_s": 86_401}, "ratelimit_s", "86400"),
        ({"ratelimit_s": None}, "ratelimit_s", ""),
        ({"span_penalty": 1.5}, "span_penalty", "1"),
        (
            {"parameters": {"elastic-tiresias": {"compact_pending": 1.5}}},
            "parameters.elastic-tiresias.compact_pending",
            "1.5",
        ),
        (
            {"parameters": {"tiresias": {"demote_gpu_s": -1}}},
            "parameters.tiresias.demote_gpu_s",
            "expected a number >= 0",
        ),
        ({"parameters": {"fifo": {"knob": 1}}}, "parameters.fifo.knob", "it has none"),
        (
            {"policy": "fifo", "parameters": {"ffdl": {}, "tiresias": {"promote_knob": 8, "demote_gpu_s": [1]}}},
            "parameters.tiresias.demote_gpu_s",
            "got a list",
        ),
        ({"parameters": {"ffdl": {}, "tiresias": 3}}, "parameters.tiresias", "expected an object, got a whole number"),
        ({"parameters": {"tiresas": {"demote_gpu_s": 1}}}, "parameters.tiresas", "Did you mean 'tiresias'"),
        ({"polycy": "fifo"}, "polycy", "unknown"),
    ],
)
async def test_settings_when_wrong_then_are_refused_with_the_field(body: object, field: str, told: str) -> None:
    async with a_service() as service:
        answer = await service.ask("PATCH", SETTINGS, body=body)
        problem = answer.as_a(Problem)
        assert (answer.status, problem.field) == (422, field)
        assert told in problem.detail
        assert await settings_events(service) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"ratelimit_s": NaN}',
        b'{"ratelimit_s": 1e999}',
        b"\xff\xfe",
        b"[]",
        b'{"parameters": ' + b"[" * 5_000,
    ],
)
async def test_settings_when_the_body_cannot_be_read_then_are_refused(body: bytes) -> None:
    async with a_service() as service:
        answer = await service.ask("PATCH", SETTINGS, body=body, headers={"Content-Type": "application/json"})
        assert answer.status in (400, 422)
        assert await settings_events(service) == []


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"policy": "fifo", "policy": "srtf"}', "policy"),
        (b'{"parameters": {"ffdl": {}, "tiresias": {}, "ffdl": {}}}', "ffdl"),
        (b'{"ratelimit_s": 1, "ratelimit_s": 1}', "ratelimit_s"),
    ],
)
async def test_settings_when_a_key_is_there_twice_then_are_refused(body: bytes, key: str) -> None:
    async with a_service() as service:
        answer = await service.ask("PATCH", SETTINGS, body=body, headers={"Content-Type": "application/json"})
        assert answer.status == 422
        assert answer.as_a(Problem).detail == f"the body has '{key}' twice in one object: keep one of them"
        assert await settings_events(service) == []


async def test_settings_when_somebody_was_faster_then_are_not_overwritten() -> None:
    async with a_service() as service:
        seen = (await service.ask("GET", SETTINGS)).headers["ETag"]
        asked = [
            service.ask("PATCH", SETTINGS, body={"ratelimit_s": number}, headers={"If-Match": seen})
            for number in range(1, 9)
        ]
        statuses = sorted(answer.status for answer in await asyncio.gather(*asked))
        assert statuses == [200, *[412] * 7]
        assert len(await settings_events(service)) == 1
        seen = (await service.ask("GET", SETTINGS)).headers["ETag"]
        answer = await service.ask("PATCH", SETTINGS, body={"ratelimit_s": 0}, headers={"If-Match": seen})
        assert answer.as_a(Settings).ratelimit_s == 0


async def test_settings_when_many_change_them_at_once_then_every_change_is_kept() -> None:
    async with a_service() as service:
        bodies = [{"policy": "fifo"}, {"placer": "packed"}, {"ratelimit_s": 3}, {"resize_cost_s": 7}]
        answers = await asyncio.gather(*(service.ask("PATCH", SETTINGS, body=body) for body in bodies))
        assert [answer.status for answer in answers] == [200] * 4
        settings = (await service.ask("GET", SETTINGS)).as_a(Settings)
        assert (settings.policy, settings.placer, settings.ratelimit_s, settings.resize_cost_s) == (
            "fifo",
            "packed",
            3.0,
            7.0,
        )


async def test_settings_when_changed_by_no_admin_then_are_refused(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(0.0))
    async with a_service(access=access) as service:
        for role in ("user", "viewer"):
            token = access.add(role, role)
            assert (await service.ask("GET", SETTINGS, token=token)).status == 200
            answer = await service.ask("PATCH", SETTINGS, token=token, body={"ratelimit_s": 1})
            assert answer.status == 403
        assert await settings_events(service) == []
        admin = (tmp_path / "admin.token").read_text().strip()
        assert (await service.ask("PATCH", SETTINGS, token=admin, body={"ratelimit_s": 1})).status == 200


async def test_pool_when_unknown_then_is_not_found() -> None:
    async with a_service() as service:
        for path in ("", "/settings", "/plan", "/plans/1"):
            assert (await service.ask("GET", f"/api/v1/pools/nowhere{path}")).status == 404
        answer = await service.ask("PATCH", "/api/v1/pools/nowhere/settings", body={"ratelimit_s": 1})
        assert answer.status == 404
        assert await service.backend.journal.store.read(0, 10, stream="settings.nowhere") == []
