"""A world starts empty, so that no test depends on what another one left on the control plane."""

from tests.kube.client import NAMESPACES, Client
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.stand_in_world import StandInWorld

NAMESPACE = "left-behind"


async def test_world_when_a_job_was_left_in_another_namespace_starts_without_it(control_plane: ControlPlane) -> None:
    async with Client(control_plane) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await client.create(MpiOperatorV2(client).resource, an_mpijob("digits", NAMESPACE))
    async with StandInWorld(control_plane, [MpiOperatorV2]) as world:
        (operator,) = world.operators
        assert await world.client.list(operator.resource) == []
        assert not operator.jobs.objects
