"""Pods that claim parts of cards move on request: real evictions, by real controllers and their disruption budgets.

Rule: the pods are those of examples/kubernetes/shared-claims.yaml, whose users let them be restarted.
"""

from collections.abc import AsyncIterator, Mapping, Set
from copy import deepcopy
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import refuse_unverified, voda
from tests.e2e.kubernetes.test_shared_claims import (
    DEPLOYMENTS,
    NOTEBOOK,
    SETTINGS,
    TEMPLATE,
    cards,
    claim,
    claiming,
    publish,
    told,
    typed,
    until_run,
    until_runs,
)
from tests.kube import client as api
from tests.kube import deployed
from tests.kube.assets import IS_OLD
from tests.kube.devices import CLASS
from tests.kube.peers.jobs_world import JobsWorld
from voda.domain.shares import RESTARTABLE
from voda.events.types import DefragmentationRequested

pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")

BUDGETS = api.Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
NAME = NOTEBOOK["metadata"]["name"]
SPREAD: Mapping[str, Any] = {**SETTINGS, "sharing": {"claims": True, "rater": "spread"}}
"""Left alone, this rater takes the whole card again."""
_MORTAL = str(Path(__file__).with_name("mortal.py"))


@pytest.fixture
async def notebooks(jobs_world: JobsWorld) -> AsyncIterator[JobsWorld]:
    """A node of two cards, and the example with two pods."""
    await publish(jobs_world, {"gpu-1": 2})
    deployment = deepcopy(NOTEBOOK)
    deployment["spec"]["template"]["metadata"]["annotations"] = {RESTARTABLE: "true"}
    for resource, body in ((api.CLAIM_TEMPLATES, TEMPLATE), (DEPLOYMENTS, deployment)):
        metadata = {**body["metadata"], "namespace": jobs_world.namespace}
        await jobs_world.client.create(resource, {**body, "metadata": metadata})
    yield jobs_world
    await jobs_world.client.delete(DEPLOYMENTS, NAME, jobs_world.namespace)


async def until_on(world: JobsWorld, cards_used: int, *, pods: int = 2) -> Set[str]:
    """Wait until the pods run on so many cards, and return their names."""

    async def are_there() -> bool:
        found = await cards(world)
        return len(found) == pods and len(set(found.values())) == cards_used

    await world.until_it_is(are_there, what=f"{pods} pods run on {cards_used} cards")
    return (await cards(world)).keys()


async def test_pod_moves_once_its_budget_allows_it_and_a_pod_that_waits_for_a_whole_card_gets_one(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    budget = {"minAvailable": 2, "selector": {"matchLabels": NOTEBOOK["spec"]["selector"]["matchLabels"]}}
    await world.client.create(BUDGETS, {"metadata": {"name": NAME, "namespace": world.namespace}, "spec": budget})
    async with voda(world, tmp_path, **SPREAD) as it:
        before = await until_on(world, 2)
        await claim(world, "whole", [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 1}}])
        await world.client.create(api.PODS, claiming(world, "whole", "whole"))
        shown = await typed(it, "nodes", "defragment", "--dry-run")
        assert "cards wholly free    0      1" in shown
        assert await it.facts(DefragmentationRequested) == []
        assert "Become whole: gpu-1 card " in await typed(it, "nodes", "defragment")
        (fact,) = await it.facts(DefragmentationRequested)
        (move,) = fact.moves

        async def is_refused() -> bool:
            return any("disruption budget" in each for each in await told(world, "NotMoved"))

        await world.until_it_is(is_refused, what="the pod is told why it stays")
        assert await until_run(world, 2) == await cards(world)
        assert (await cards(world)).keys() == before
        assert "it is to be evicted, so that card" in await typed(it, "explain", move.pod)
        await world.client.delete(BUDGETS, NAME, world.namespace)
        await until_runs(world, "whole")
        after = await until_on(world, 2, pods=3)
        assert before - after == {move.pod.partition("/")[2]}
        (new,) = after - before - {"whole"}
        assert f"it got its cards when {move.pod} was evicted" in await typed(it, "explain", f"{world.namespace}/{new}")
        assert f"{move.pod} moves from {move.source} to {move.target}" in await typed(
            it, "events", "--type", "defragmentation.requested"
        )
        assert (await told(world, "Moved"))[0].startswith(f"evicted so that {move.source} becomes whole")


async def test_leader_that_dies_after_the_eviction_leaves_it_to_the_next_one(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    home, log = tmp_path / "home", str(tmp_path / "home" / "voda.db")
    leader = {"namespace": deployed.NAMESPACE, "leaseSeconds": 1.0, "renewSeconds": 0.8, "retrySeconds": 0.1}
    # With the rights that the chart gives, and no other.
    kubeconfig = deployed.service_account_kubeconfig(world.plane, "sqlite", "--set", "sharedClaims.enabled=true")
    around: dict[str, Any] = {"settings": {**SPREAD, "leader": leader}, "kubeconfig": kubeconfig}
    death = {"MORTAL": "after create pods/eviction 1"}
    first = Replica(world, home, log, program=(_MORTAL,), environment=death, **around)
    before = await until_on(world, 2)
    async with aiohttp.ClientSession() as session, session.post(f"{first.url}/api/v1/defragmentation") as answer:
        assert [pool["is_requested"] for pool in (await answer.json())["items"]] == [True]
    await world.until(lambda: first.process.poll() is not None, what="the first leader is dead")
    last = Replica(world, home, log, **around)
    try:
        after = await until_on(world, 1)
        assert len(before & after) == 1
    finally:
        last.terminate()
        last.process.wait(30)
    await refuse_unverified(log)
