"""What one pool's cluster makes of actions, on a cluster in memory and on virtual time."""

from tests.kube.acting import Stage
from tests.virtual_time import virtually
from voda.cluster.kubernetes.cluster import KubernetesCluster
from voda.cluster.kubernetes.state.observations import Observations
from voda.domain.plan import HaltJob, MigrateWorkers, ResizeJob, StartJob


async def _trust(pool: str) -> None:
    """Ask nobody: the watch of these tests is never behind."""


def test_move_when_a_new_leader_knows_of_gaps_moves_and_leaves_the_gaps_to_the_resize_that_follows() -> None:
    async def act() -> None:
        stage = Stage()
        observations = Observations(stage.inventory)
        cluster = KubernetesCluster("v100", stage.inventory, observations, stage.actuator, _trust)
        for node in ("n1", "n2"):
            stage.add_node(node)
        stage.add_job("a", workers=3)
        stage.add_worker("a", 0)
        stage.add_worker("a", 1, node="n1", phase="Running")
        stage.add_worker("a", 2)
        await cluster.apply(MigrateWorkers(job_id="a", moves={1: "n2"}))
        assert stage.pods() == {"a-worker-0": "", "a-worker-2": ""}
        await cluster.apply(ResizeJob(job_id="a", nodes=("n2",) * 3))
        stage.remove_pod("a-worker-1")
        stage.add_worker("a", 1)
        await stage.actuator.converge(["a"])
        assert stage.pods() == dict.fromkeys(("a-worker-0", "a-worker-1", "a-worker-2"), "n2")
        # Its size was never in question: the operator was asked for nothing.
        assert not [path for method, path in stage.wire.asked if method == "PATCH"]

    virtually(act())


def test_job_whose_workers_wait_for_room_is_shown_as_starting_until_they_have_some_or_it_is_halted() -> None:
    async def act() -> None:
        stage = Stage()
        observations = Observations(stage.inventory)
        cluster = KubernetesCluster("v100", stage.inventory, observations, stage.actuator, _trust)
        stage.add_node("n1", cpu="1")
        stage.add_job("a", workers=1)
        stage.add_job("b", workers=1, pool="other")
        stage.add_worker("a", 0, cpu="4")
        for job_id in "ab":
            await cluster.apply(StartJob(job_id=job_id, nodes=("n1",)))
        assert (await cluster.observe()).starting == ["a"]
        await cluster.apply(HaltJob(job_id="a"))
        assert (await cluster.observe()).starting == []
        await cluster.apply(StartJob(job_id="a", nodes=("n1",)))
        stage.remove_pod("a-worker-0")
        stage.add_worker("a", 0, node="n1", phase="Running")
        assert (await cluster.observe()).starting == []

    virtually(act())
