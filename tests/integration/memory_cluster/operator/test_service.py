"""Voda on a cluster in memory where everything goes wrong at once, on virtual time: in the end all is as planned.

Each seed is another history of submissions, hands, failures, lost nodes, outages and leaders that are killed.
"""

import logging
from collections.abc import Sequence

import pytest

from tests.builders import Log
from tests.kube.client import CLAIM_TEMPLATES, DEVICE_CLASSES, SLICES
from tests.kube.devices import a_claim_template, a_device_class, a_slice, claims_of
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import a_node, a_pytorchjob, an_mpijob
from tests.kube.operators.base import Operator
from tests.kube.operators.mpi_v1 import MpiOperatorV1
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.pytorch import PyTorchOperator
from tests.kube.upheaval import Upheaval
from tests.virtual_time import virtually
from voda.app.kubernetes.service import log_event
from voda.domain.reasons.nodes import Said
from voda.events.types import JobFailed, JobProgressed, WorkerRefused

EVENTS = 60
V2 = (MpiOperatorV2, PyTorchOperator)
V1 = (MpiOperatorV1, PyTorchOperator)


async def live_through(seed: int, operators: Sequence[type[Operator]]) -> None:
    async with MemoryWorld(seed, operators, Wire(seed, longest_s=0.02)) as world:
        upheaval = Upheaval(world, seed)
        try:
            async with upheaval:
                await upheaval.rage(EVENTS)
                await upheaval.calm()
                await upheaval.finish()
        except AssertionError as error:
            log = [f"{event.recorded_at:.2f} {event.data}"[:300] for event in await world.store.read(0, 100_000)]
            story = "\n".join(["", *upheaval.told, "", *log[-60:], "", await world.picture()])
            raise AssertionError(f"seed {seed}: {error}{story}") from error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_cluster_when_all_goes_wrong_comes_to_be_as_planned(seed: int) -> None:
    virtually(live_through(seed, V2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 10))
def test_cluster_of_the_other_operator_when_all_goes_wrong_comes_to_be_as_planned(seed: int) -> None:
    virtually(live_through(seed, V1))


def test_jobs_that_claim_gpus_share_nodes_of_a_cluster_in_memory_and_none_is_refused() -> None:
    async def story() -> None:
        async with MemoryWorld(1, V2, Wire(1, longest_s=0.02)) as world:
            # A device class of the default settings.
            name = "gpu.nvidia.com"
            await world.client.create(DEVICE_CLASSES, a_device_class(name))
            for node in ("n1", "n2"):
                await world.add_nodes(a_node(node, 0, POOL))
                await world.client.create(SLICES, a_slice(node, 4))
            request = {"exactly": {"deviceClassName": name, "count": 2}}
            await world.client.create(CLAIM_TEMPLATES, a_claim_template("two", world.namespace, request=request))
            async with world.replica(Wire(2, longest_s=0.02)):
                claims = {"gpus": 0, "worker_spec": claims_of("two")}
                await world.submit(an_mpijob("a", world.namespace, 1, least=1, most=4, **claims))
                await world.until_running("a", 4)
                await world.submit(a_pytorchjob("b", world.namespace, 2, least=2, most=2, **claims))
                await world.until_running("b", 2)
                await world.until_running("a", 2)
                for pod in await world.pods_of("b"):
                    await world.kubelet.exit(world.namespace, pod["metadata"]["name"])
                await world.until_running("a", 4)
            facts = [event.data for event in await world.store.read(0, 100_000)]
            assert not [fact for fact in facts if isinstance(fact, WorkerRefused)]

    virtually(story())


def test_event_is_a_line_with_position_and_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = Log()
    for fact in (
        JobProgressed(job_id="a", epochs_done=1.0, workers=1),
        JobFailed(job_id="a", reason=Said(text="out of\nmemory")),
    ):
        log_event(log.add(fact, at=1.0))
    assert caplog.messages == ["job.failed position=2 about=a: failed: out of memory"]
