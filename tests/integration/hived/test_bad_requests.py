"""What kube-scheduler, or somebody in its place, may send; and who may."""

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import encode_basic_auth

from tests.integration.hived.scheduling import NODES, Scheduling, scheduling
from tests.service import START, a_service
from tests.unit.hived.pods import a_pod
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.errors import StoreUnavailable
from voda.hived.pod_request import HivedPod, PodMetadata
from voda.log.memory import MemoryStore

POD = msgspec.to_builtins(a_pod("p"))


async def test_filter_with_lower_case_keys_and_unknown_fields_is_answered() -> None:
    async with scheduling() as at:
        body = {"pod": {**POD, "spec": {"future": [1]}}, "nodenames": [*NODES], "nodes": None, "weights": {"a": 1}}
        answer = await at.ask("filter", body)
        assert (answer.status, len(answer.json()["NodeNames"])) == (200, 1)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"Pod": POD, "NodeNames": None, "Nodes": {"items": []}}, 200, "nodeCacheCapable: true"),
        ({"Pod": None, "NodeNames": ["n1"]}, 200, "has no metadata.uid|has no annotation"),
        ({"NodeNames": ["n1"], "Pod": {"metadata": {"uid": "u"}}}, 200, "has no annotation"),
        ({"NodeNames": ["n1"], "Pod": {"metadata": {"name": 1}}}, 200, "the pod, metadata.name"),
        ({"NodeNames": "n1"}, 200, "the body, nodenames"),
        (b"[]", 200, "the body"),
        (b"", 200, "the body is not JSON"),
        (b"\xff", 200, "the body is not JSON"),
        (b"[" * 200_000, 200, "the body"),
        (io.BytesIO(b'{"NodeNames": ["' + b"n" * 10_000_000 + b'"]}'), 413, "larger than this server takes"),
    ],
)
async def test_filter_that_cannot_be_read_is_refused_with_a_sentence(body: Any, status: int, sentence: str) -> None:
    async with scheduling() as at:
        answer = await at.ask("filter", body)
        assert answer.status == status
        document = answer.json()
        assert re.search(sentence, document.get("detail") or document["Error"])
        assert await at.node(a_pod("after"))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"virtualCluster": "none"}, "none"),
        ({"leafCellNumber": 0}, "leafCellNumber|0"),
        ({"priority": 5000}, "5000"),
        ({"leafCellType": "V100"}, "V100"),
        ({"leafCellNumber": "two"}, "leafCellNumber: expected `int`"),
        ({"affinityGroup": {"name": "job#1", "members": [{"podNumber": 1, "leafCellNumber": 1}]}}, "cannot be called"),
    ],
)
async def test_pod_whose_request_can_never_be_met_has_the_reason_as_error(spec: dict[str, Any], sentence: str) -> None:
    async with scheduling() as at:
        error = (await at.filter(a_pod("p", **spec)))["Error"]
        assert re.search(sentence, error), error
        assert await at.facts() == []


async def test_pod_of_a_namespace_that_is_no_member_is_refused_whomever_it_names() -> None:
    async with scheduling() as at:
        pod = a_pod("p", virtualCluster="b", annotations={"voda.dev/user": "team"})
        elsewhere = HivedPod(PodMetadata("p", "others", pod.metadata.uid, pod.metadata.annotations))
        assert (await at.filter(elsewhere))["Error"] == "user others of pod others/p is no member of virtual cluster b"


async def test_pod_belongs_to_its_namespace_whomever_it_names() -> None:
    async with scheduling() as at:
        assert await at.node(a_pod("p", virtualCluster="b", annotations={"voda.dev/user": "eve"}))


async def test_pod_without_a_name_or_with_a_huge_gang_harms_nobody() -> None:
    async with scheduling() as at:
        huge = {"name": "huge", "members": [{"podNumber": 10**12, "leafCellNumber": 1}]}
        assert "expected at most 65536" in await at.reason(a_pod("p", affinityGroup=huge))
        large = {"name": "large", "members": [{"podNumber": 65_536, "leafCellNumber": 1}]}
        assert "too few cells" in await at.reason(a_pod("p", affinityGroup=large))
        nameless = HivedPod(PodMetadata("", "", "uid", a_pod("p").metadata.annotations))
        assert await at.node(nameless)


async def _refused(at: Scheduling) -> list[int]:
    body = {"Pod": POD, "NodeNames": [*NODES]}
    answers = [await at.ask(verb, body) for verb in ("filter", "preempt", "bind")]
    answers.append(await at.service.ask("GET", "/v1/inspect/affinitygroups/"))
    assert all("leads" in answer.json()["detail"] or "lead" in answer.json()["detail"] for answer in answers)
    return [answer.status for answer in answers]


async def test_replica_that_does_not_lead_says_so() -> None:
    led_by = ["voda-1 leads"]
    async with scheduling(not_leading=lambda: led_by[0]) as at:
        assert await _refused(at) == [503] * 4
        led_by[0] = ""
        assert await at.node(a_pod("p"))
        at.scheduler.forget()
        assert await _refused(at) == [503] * 4


async def test_filter_when_the_log_does_not_answer_forgets_what_it_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduling() as at:

        async def fails(*_: object, **__: object) -> int:
            raise StoreUnavailable("the log does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "append", fails)
            assert (await at.filter(a_pod("p")))["Error"] == "the log does not answer"
        assert (await at.inspect("affinitygroups/"))["items"] == []
        assert await at.node(a_pod("p"))


async def test_extender_takes_a_schedulers_token_as_password_and_nobody_elses(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    admin = (tmp_path / "admin.token").read_text().strip()
    tokens = {role: access.add(role, role) for role in ("user", "viewer", "scheduler")}
    async with scheduling(access=access, admin=admin) as at:
        body = {"Pod": POD, "NodeNames": [*NODES]}
        assert [(await at.ask("filter", body, token=tokens[role])).status for role in ("user", "viewer")] == [403, 403]
        assert (await at.ask("filter", body)).status == 401
        password = {"Authorization": encode_basic_auth("scheduler", tokens["scheduler"])}
        answer = await at.service.ask("POST", "/v1/extender/filter", body=body, headers=password)
        assert (answer.status, len(answer.json()["NodeNames"])) == (200, 1)


async def test_server_of_one_machine_says_that_it_schedules_no_pods() -> None:
    async with a_service() as service:
        answer = await service.ask("POST", "/v1/extender/filter", body={"Pod": POD, "NodeNames": ["n1"]})
        assert (answer.status, "served on Kubernetes" in answer.json()["detail"]) == (404, True)
