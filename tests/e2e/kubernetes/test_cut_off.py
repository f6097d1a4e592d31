"""A leader that reaches the API server and not its log: another replica, which reaches both, takes over."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import refuse_unlike
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from tests.relay import Relay, relayed


@pytest.fixture
async def relay(log: str) -> AsyncIterator[Relay]:
    """A way to the log that can be cut."""
    url = make_url(log)
    async with relayed(f"http://{url.host}:{url.port}") as made:
        yield made


@pytest.fixture
async def replicas(world: World, tmp_path: Path, log: str, relay: Relay) -> AsyncIterator[list[Replica]]:
    """One replica that reaches the log by the relay, and room for more."""
    port = int(relay.url.rpartition(":")[2])
    by_relay = make_url(log).set(port=port).render_as_string(hide_password=False)
    started = [Replica(world, tmp_path / "one", by_relay)]
    yield started
    for replica in started:
        replica.kill()


async def test_leader_that_cannot_reach_its_log_gives_the_lead_to_a_replica_that_can(
    world: World, tmp_path: Path, log: str, relay: Relay, replicas: list[Replica]
) -> None:
    await world.add_node("gpu-1", gpus=4)
    [first] = replicas
    await world.until(lambda: first.leads)
    await world.submit(job(world, "a"))
    await world.until_running("a", 1)
    second = Replica(world, tmp_path / "two", log)
    replicas.append(second)
    await world.until(lambda: second.url)
    relay.close()
    await world.until(lambda: second.leads)
    assert not first.leads
    assert not first.is_over()
    await world.submit(job(world, "b"))
    await world.until_running("b", 1)
    await world.until_running("a", 1)
    await refuse_unlike(log, world)


def job(world: World, name: str) -> dict[str, Any]:
    """Return a job of one worker."""
    return an_mpijob(name, world.namespace, workers=1, least=1, most=1)
