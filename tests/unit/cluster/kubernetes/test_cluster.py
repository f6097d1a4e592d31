"""What one pool's cluster makes of actions, on a cluster in memory and on virtual time."""

from tests.builders import a_state
from tests.kube.acting import Stage
from tests.virtual_time import virtually
from voda.cluster.kubernetes.cluster import KubernetesCluster
from voda.cluster.kubernetes.state.observations import Observations
from voda.domain.plan import HaltJob, Placement, StartJob
from voda.reconcilers.diff import diff


async def _trust(pool: str) -> None:
    """Ask nobody: the watch of these tests is never behind."""


def test_job_when_it_shrinks_and_moves_off_a_lost_node_has_its_size_written_once() -> None:
    async def act() -> None:
        stage = Stage()
        cluster = KubernetesCluster("v100", stage.inventory, Observations(stage.inventory), stage.actuator, _trust)
        for node in ("n1", "n2"):
            stage.add_node(node)
        stage.add_job("a", workers=4)
        for index, node in enumerate(("n1", "n1", "n2", "n2")):
            stage.add_worker("a", index, node=node, phase="Running")
        stage.remove_pod("a-worker-1")
        stage.watch()
        planned: Placement = {"a": ("n2", "n2")}
        state = a_state(jobs=list(stage.jobs.values()), placement=planned)
        # The dead pods stay for a while, and every round acts on what it sees, as the worker reconciler does.
        for _ in range(5):
            for action in diff(state, await cluster.observe()):
                await cluster.apply(action)
            stage.watch()
            await stage.actuator.converge(["a"])
        sizes = [path for method, path in stage.wire.asked if method == "PATCH"]
        assert len(sizes) == 1, sizes

    virtually(act())


def test_job_whose_workers_wait_for_room_is_shown_as_starting_until_they_have_some_or_it_is_halted() -> None:
    async def act() -> None:
        stage = Stage()
        observations = Observations(stage.inventory)
        cluster = KubernetesCluster("v100", stage.inventory, observations, stage.actuator, _trust)
        stage.add_node("n1", gpus=0)
        stage.add_job("a", workers=1)
        stage.add_job("b", workers=1, pool="other")
        stage.add_worker("a", 0)
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
