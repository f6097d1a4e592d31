"""How simulated jobs train: what starts, resizes and deaths cost. What every cluster promises: tests/contract."""

from collections.abc import Sequence

import pytest

from tests.builders import a_node, a_spec
from voda.clock import VirtualClock
from voda.domain.errors import ActionRefused
from voda.domain.plan import HaltJob, ResizeJob, StartJob
from voda.events.types import (
    JobCompleted,
    JobProgressed,
    NodeChanged,
    NodeRoomChanged,
    Observation,
    WorkerExited,
    WorkerStarted,
)
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import Costs


class SteadyProfile:
    """Ten epochs of 100 s on one worker, linear, 20 % slower over nodes; 30 s a start, 20 s a resize, 10 s a move."""

    epochs = 10
    costs = Costs(start_s=30, resize_s=20, migrate_s=10)

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 100 / sum(per_node) * (1.2 if len(per_node) > 1 else 1.0)


class LongProfile:
    """One epoch of 10,000 s on one worker, linear; 1,000 s a start."""

    epochs = 1
    costs = Costs(start_s=1000)

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 10_000 / sum(per_node)


class Bench:
    """A simulated cluster of two nodes x 4 GPUs with its clock, and job `a` (1..4 workers) made known."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = SimulatedCluster([a_node("n1"), a_node("n2")], now=self.clock.now)
        self.cluster.admit(a_spec("a", max_replicas=4), SteadyProfile())

    def at(self, instant: float) -> Sequence[Observation]:
        """Let everything happen until `instant`, and return the notices."""
        seen: list[Observation] = []
        while (end := self.cluster.next_at()) <= instant:
            self.clock.move_to(end)
            self.cluster.advance(end)
            seen += self.cluster.take_notices()
        self.clock.move_to(instant)
        return seen


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_start_when_there_is_no_room_is_refused_whole(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 4))
    bench.cluster.admit(a_spec("b", max_replicas=4), SteadyProfile())
    with pytest.raises(ActionRefused, match="job b: needs 1 more GPUs on node n1, 0 free"):
        await bench.cluster.apply(StartJob(job_id="b", nodes=("n2", "n1")))
    assert (await bench.cluster.observe()).workers == {"a": dict.fromkeys(range(4), "n1")}
    await bench.cluster.apply(StartJob(job_id="b", nodes=("n2",) * 4))


async def test_training_when_started_pays_the_start_then_reports_each_epoch(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    bench.cluster.take_notices()
    assert bench.at(79) == []
    assert bench.at(80) == [JobProgressed(job_id="a", epochs_done=1, workers=2)]
    assert bench.at(130) == [JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=50)]


async def test_two_changes_at_one_instant_cost_as_much_as_the_longer(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",)))
    bench.at(30)
    await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n1")))
    await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n2", "n2")))
    bench.cluster.take_notices()
    assert bench.at(30 + 20 + 49) == []
    assert len(bench.at(30 + 20 + 50)) == 1


async def test_training_when_halted_keeps_its_progress(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",)))
    bench.at(80)
    await bench.cluster.apply(HaltJob(job_id="a"))
    bench.at(500)
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",)))
    bench.cluster.take_notices()
    assert bench.at(579) == []
    assert bench.at(580) == [JobProgressed(job_id="a", epochs_done=1, workers=1)]


async def test_training_when_spanning_nodes_is_slower(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n2")))
    bench.cluster.take_notices()
    assert bench.at(89) == []
    assert len(bench.at(90)) == 1


async def test_training_when_all_epochs_are_done_completes_and_frees_its_gpus(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 4))
    told = bench.at(30 + 10 * 25)
    assert told[-2:] == [JobCompleted(job_id="a"), WorkerExited(job_id="a", workers=(0, 1, 2, 3), cause="finished")]
    assert (await bench.cluster.observe()).workers == {}
    assert bench.cluster.next_at() == float("inf")


async def test_worker_when_it_dies_costs_the_epoch_and_a_restart(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    bench.at(70)
    bench.cluster.take_notices()
    bench.cluster.fail_worker("a", 1)
    assert bench.cluster.take_notices() == [WorkerExited(job_id="a", workers=(1,), cause="failed")]
    assert bench.at(70 + 20 + 99) == []
    assert bench.at(70 + 20 + 100) == [JobProgressed(job_id="a", epochs_done=1, workers=1)]


async def test_worker_when_it_dies_in_a_long_epoch_costs_what_came_after_the_checkpoint(bench: Bench) -> None:
    bench.cluster.admit(a_spec("long", max_replicas=4), LongProfile())
    await bench.cluster.apply(StartJob(job_id="long", nodes=("n1", "n1")))
    bench.at(1000 + 700)
    bench.cluster.fail_worker("long", 1)
    bench.cluster.take_notices()
    assert bench.at(1700 + (10_000 - 2 * 600) - 1) == []
    assert bench.at(1700 + (10_000 - 2 * 600))[:1] == [JobProgressed(job_id="long", epochs_done=1, workers=1)]


async def test_job_when_too_few_workers_are_left_stands_still(bench: Bench) -> None:
    bench.cluster.admit(a_spec("rigid", min_replicas=2, max_replicas=2), SteadyProfile())
    await bench.cluster.apply(StartJob(job_id="rigid", nodes=("n1", "n2")))
    bench.cluster.fail_worker("rigid", 0)
    bench.cluster.take_notices()
    assert bench.at(10_000) == []
    await bench.cluster.apply(ResizeJob(job_id="rigid", nodes=("n1", "n2")))
    assert bench.cluster.take_notices() == [WorkerStarted(job_id="rigid", workers={0: "n1"})]
    assert len(bench.at(10_000 + 20 + 60)) == 1


async def test_node_when_others_leave_it_other_room_keeps_its_workers(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n2")))
    bench.cluster.take_notices()
    bench.cluster.change_node(NodeRoomChanged(name="n2", room={"cpu": 1_000}))
    observed = await bench.cluster.observe()
    assert observed.workers == {"a": {0: "n1", 1: "n2"}}
    assert observed.nodes["n2"].room == {"cpu": 1_000}


async def test_node_when_it_dies_takes_its_workers_and_comes_back_empty(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n2")))
    bench.cluster.take_notices()
    bench.cluster.set_ready("n2", False)
    assert bench.cluster.take_notices() == [
        NodeChanged(node=a_node("n2", is_ready=False)),
        WorkerExited(job_id="a", workers=(1,), cause="node_lost"),
    ]
    with pytest.raises(ActionRefused, match="0 free"):
        await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n2")))
    bench.cluster.set_ready("n2", True)
    await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n2")))
    assert (await bench.cluster.observe()).workers == {"a": {0: "n1", 1: "n2"}}
