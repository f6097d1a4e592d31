"""Two replicas on one log: handing over, taking over, and an API on each, on a real API server."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import refuse_unlike
from tests.kube.client import LEASES
from tests.kube.deployed import run_kubectl, service_account_kubeconfig
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.events.types import LEADERSHIP, JobSubmitted, LeaderElected, PlanAdopted
from voda.log.factory import open_log

Start = Callable[..., Replica]


@pytest.fixture
async def start(world: World, tmp_path: Path) -> AsyncIterator[Start]:
    """Start replicas that are killed when the test ends."""
    started: list[Replica] = []

    def start(name: str, log: str, **options: Any) -> Replica:
        started.append(Replica(world, tmp_path / name, log, **options))
        return started[-1]

    yield start
    for replica in started:
        replica.kill()


async def ask(replica: Replica, path: str, body: Any = None) -> Any:
    """Ask a replica's API."""
    method = "GET" if body is None else "POST"
    async with aiohttp.ClientSession() as session, session.request(method, replica.url + path, json=body) as answer:
        assert answer.status < 300, await answer.text()
        return await answer.json()


async def is_ready(replica: Replica) -> bool:
    """Ask a replica's readiness probe."""
    if not replica.url:
        return False
    async with aiohttp.ClientSession() as session, session.get(f"{replica.url}/readyz") as answer:
        return answer.status == 200


async def test_follower_takes_intent_and_the_leader_acts(world: World, start: Start, log: str) -> None:
    await world.add_node("gpu-1", gpus=2)
    leader = start("one", log)
    await world.until(lambda: leader.leads)
    follower = start("two", log)
    await world.until_it_is(lambda: is_ready(follower))
    await ask(follower, "/api/v1/jobs", an_mpijob("a", world.namespace, workers=1, least=1, most=2))
    await world.until_running("a", 2)
    assert not follower.leads

    async def is_shown() -> bool:
        # The follower reads of it a moment after the leader wrote it down.
        return bool((await ask(follower, f"/api/v1/jobs/{world.namespace}_a"))["phase"] == "Running")

    await world.until_it_is(is_shown)
    await refuse_unlike(log, world)


async def test_leader_when_told_to_end_hands_over(world: World, start: Start, log: str) -> None:
    await world.add_node("gpu-1", gpus=2)
    first = start("one", log)
    await world.until(lambda: first.leads)
    await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
    await world.until_running("a", 2)
    second = start("two", log)
    await world.until(lambda: second.url)
    before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
    first.terminate()
    await world.until(lambda: second.leads)
    await world.until(first.is_over)
    assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} == before
    await world.end_launcher("a")
    await world.until_gone("a-worker-0")
    await refuse_unlike(log, world)


async def test_leader_when_killed_is_followed_and_nothing_runs_twice(world: World, start: Start, log: str) -> None:
    await world.add_node("gpu-1", gpus=2)
    first = start("one", log)
    await world.until(lambda: first.leads)
    second = start("two", log)
    await world.until(lambda: second.url)
    await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
    await world.until_running("a", 2)
    before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
    first.kill()
    await world.until(lambda: second.leads)
    await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=1))
    await world.until_running("b", 1)
    assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} <= before
    store = await open_log(log)
    facts = [event.data for event in await store.read(0, 100_000)]
    await store.close()
    assert sum(isinstance(fact, JobSubmitted) for fact in facts) == 2
    assert len({fact.leader for fact in facts if isinstance(fact, LeaderElected) and fact.pool == "v100"}) == 2
    assert any(isinstance(fact, PlanAdopted) for fact in facts)
    await refuse_unlike(log, world)


async def test_leader_that_the_log_elected_when_killed_is_followed_without_a_lease(
    world: World, start: Start, log: str
) -> None:
    await world.add_node("gpu-1", gpus=2)
    settings = {"leader": {"election": "log", "leaseSeconds": 3.0, "renewSeconds": 2.0, "retrySeconds": 0.3}}
    first = start("one", log, settings=settings)
    await world.until(lambda: first.leads)
    second = start("two", log, settings=settings)
    await world.until(lambda: second.url)
    await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
    await world.until_running("a", 2)
    before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
    assert not second.leads
    first.kill()
    await world.until(lambda: second.leads)
    await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=1))
    await world.until_running("b", 1)
    assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} <= before
    assert await world.client.list(LEASES, world.namespace) == []
    # While somebody is there to record what just started.
    await refuse_unlike(log, world)
    second.terminate()
    await world.until(second.is_over)
    store = await open_log(log)
    elections = [event for event in await store.read(0, 100_000) if event.stream == LEADERSHIP]
    await store.close()
    epochs = [event.epoch for event in elections]
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= 2


@pytest.mark.parametrize("is_narrow", [False, True], ids=["everywhere", "in its namespaces"])
async def test_voda_with_exactly_its_service_accounts_rights_runs_a_job_from_begin_to_end(
    world: World, start: Start, tmp_path: Path, is_narrow: bool
) -> None:
    await world.add_node("gpu-1", gpus=4)
    namespaces = [world.namespace] if is_narrow else []
    # What another test gave voda is not taken back by giving it less.
    binding = "clusterrolebinding/jobs.voda.voda-system"
    run_kubectl("delete", binding, "--ignore-not-found", plane=world.plane)
    rights = ("--set-json", f"settings.cluster.namespaces={json.dumps(namespaces)}")
    config = service_account_kubeconfig(world.plane, "sqlite", *rights)
    settings = {
        "leader": {"namespace": "voda-system", "name": "voda"},
        "cluster": {"defaultPool": "", "namespaces": namespaces},
    }
    it = start("one", str(tmp_path / "one.db"), kubeconfig=config, settings=settings)
    await world.until(lambda: it.leads)
    await ask(it, "/api/v1/jobs", an_mpijob("api", world.namespace, workers=1, least=1, most=4))
    await world.until_running("api", 4)
    await world.submit(an_mpijob("ctl", world.namespace, workers=1, least=1, most=4))
    await world.until_running("ctl", 2)
    await world.add_node("gpu-2", gpus=4)
    await world.give_to_pool("gpu-1", "a100")
    await world.until_running("ctl", 2)
    await world.end_launcher("ctl")
    await world.end_launcher("api")
    await world.until_it_is(lambda: world.has_condition("api", "Succeeded"))
    assert "forbidden" not in it.text.lower()
