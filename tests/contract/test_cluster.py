"""What every adapter of the Cluster port promises; how simulated jobs train is in tests/unit/simulator."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.builders import a_node, a_spec
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job
from tests.waiting import until, until_it_is
from voda.clock import VirtualClock
from voda.cluster.port import Cluster
from voda.domain.errors import ActionRefused
from voda.domain.plan import Action, HaltJob, MigrateWorkers, ResizeJob, StartJob, StopJob
from voda.events.types import JobCompleted, Observation, WorkerExited, WorkerStarted
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.profile import Costs


class OneEpoch:
    """One epoch of 100 s on one worker."""

    epochs = 1
    costs = Costs()

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 100 / sum(per_node)


class Bench(Protocol):
    """A cluster of one node `n1` with 4 GPUs, and the jobs `a` and `b` (1..4 workers) made known."""

    cluster: Cluster

    def notices(self) -> Sequence[Observation]:
        """Return all that was told so far."""
        ...

    def finish(self, job_id: str) -> None:
        """Let a running job end well."""
        ...

    async def fail_worker(self, job_id: str, index: int) -> None:
        """Let a worker of a running job die."""
        ...


class SimulatedBench:
    """On virtual time: whatever happens has happened at once."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.simulated = SimulatedCluster([a_node("n1")], now=self.clock.now)
        self.cluster: Cluster = self.simulated
        self._told: list[Observation] = []
        for job_id in "ab":
            self.simulated.admit(a_spec(job_id, max_replicas=4), OneEpoch())

    def notices(self) -> Sequence[Observation]:
        self._told += self.simulated.take_notices()
        return self._told

    def finish(self, job_id: str) -> None:
        self.clock.move_to(self.simulated.next_at())
        self.simulated.advance(self.clock.now())

    async def fail_worker(self, job_id: str, index: int) -> None:
        self.simulated.fail_worker(job_id, index)


class LocalBench:
    """Real processes, which take their time."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.cluster: Cluster = ground.cluster
        self._end = ground.folder / "end"
        script = f"echo $$$$; until [ -e {self._end} ]; do sleep 0.02; done"
        for job_id in "ab":
            ground.admit(a_torch_job(job_id, script if job_id == "a" else FOREVER, min_replicas=1))

    def notices(self) -> Sequence[Observation]:
        return self.ground.notices()

    def finish(self, job_id: str) -> None:
        self._end.touch()

    async def fail_worker(self, job_id: str, index: int) -> None:
        await until(lambda: self.ground.log(job_id, f"worker-{index}").endswith("\n"))
        os.kill(int(self.ground.log(job_id, f"worker-{index}")), signal.SIGKILL)


@pytest.fixture(params=["simulated", "local"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        if request.param == "simulated":
            yield SimulatedBench()
        else:
            yield LocalBench(await stack.enter_async_context(a_ground(tmp_path)))


async def _until_shown(bench: Bench, workers: dict[str, dict[int, str]]) -> None:
    async def shown() -> bool:
        return (await bench.cluster.observe()).workers == workers

    await until_it_is(shown)


async def _until_told(bench: Bench, job_id: str, indices: tuple[int, ...], cause: str) -> None:
    def told() -> bool:
        return any(
            isinstance(notice, WorkerExited)
            and (notice.job_id, notice.workers, notice.cause) == (job_id, indices, cause)
            for notice in bench.notices()
        )

    await until(told)


def _on_n1(size: int) -> dict[int, str]:
    return dict.fromkeys(range(size), "n1")


async def test_start_when_applied_is_observed_and_told(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    observed = await bench.cluster.observe()
    assert observed.workers == {"a": _on_n1(2)}
    assert observed.gpus_per_replica == {"a": 1}
    assert observed.nodes["n1"].gpus == 4
    assert bench.notices() == [WorkerStarted(job_id="a", workers=_on_n1(2))]


async def test_actions_when_repeated_change_nothing_more(bench: Bench) -> None:
    actions: list[tuple[Action, int]] = [
        (StartJob(job_id="a", nodes=("n1",)), 1),
        (ResizeJob(job_id="a", nodes=("n1",) * 3), 3),
        (ResizeJob(job_id="a", nodes=("n1",) * 2), 2),
        (MigrateWorkers(job_id="a", moves={1: "n1"}), 2),
        (HaltJob(job_id="a"), 0),
        (StopJob(job_id="a", reason="canceled"), 0),
    ]
    for action, size in actions:
        await bench.cluster.apply(action)
        await bench.cluster.apply(action)
        await _until_shown(bench, {"a": _on_n1(size)} if size else {})
        told = len(bench.notices())
        before = await bench.cluster.observe()
        await bench.cluster.apply(action)
        assert await bench.cluster.observe() == before
        assert len(bench.notices()) == told


async def test_action_when_the_job_is_gone_does_nothing_or_is_refused(bench: Bench) -> None:
    await bench.cluster.apply(HaltJob(job_id="ghost"))
    await bench.cluster.apply(StopJob(job_id="ghost", reason="unknown"))
    with pytest.raises(ActionRefused, match="job ghost: not known"):
        await bench.cluster.apply(StartJob(job_id="ghost", nodes=("n1",)))
    assert (await bench.cluster.observe()).workers == {}


async def test_start_when_there_is_no_room_is_refused_whole(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 3))
    with pytest.raises(ActionRefused, match="job b: needs 2 more GPUs on node n1, 1 free"):
        await bench.cluster.apply(StartJob(job_id="b", nodes=("n1", "n1")))
    assert (await bench.cluster.observe()).workers == {"a": _on_n1(3)}
    await bench.cluster.apply(StartJob(job_id="b", nodes=("n1",)))
    assert (await bench.cluster.observe()).workers == {"a": _on_n1(3), "b": _on_n1(1)}


async def test_start_when_the_node_is_unknown_is_refused(bench: Bench) -> None:
    with pytest.raises(ActionRefused, match=r"job a: needs .*GPUs on node n9"):
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n9",)))
    assert (await bench.cluster.observe()).workers == {}


async def test_shrink_when_applied_takes_the_highest_indices(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 3))
    await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1",)))
    await _until_shown(bench, {"a": _on_n1(1)})
    gone = [notice.workers for notice in bench.notices() if isinstance(notice, WorkerExited)]
    assert sorted(index for workers in gone for index in workers) == [1, 2]


async def test_gpus_when_a_job_is_halted_can_be_given_to_another(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 4))
    await bench.cluster.apply(HaltJob(job_id="a"))
    await _until_shown(bench, {})
    await bench.cluster.apply(StartJob(job_id="b", nodes=("n1",) * 4))
    assert (await bench.cluster.observe()).workers == {"b": _on_n1(4)}


async def test_job_when_halted_can_be_started_again(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",)))
    await bench.cluster.apply(HaltJob(job_id="a"))
    await _until_told(bench, "a", (0,), "stopped")
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    assert (await bench.cluster.observe()).workers == {"a": _on_n1(2)}


async def test_job_when_it_ends_well_is_told_before_its_workers_are(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 2))
    bench.finish("a")
    await _until_told(bench, "a", (0, 1), "finished")
    told = [notice for notice in bench.notices() if isinstance(notice, JobCompleted | WorkerExited)]
    assert told[0] == JobCompleted(job_id="a")
    assert (await bench.cluster.observe()).workers == {}


async def test_worker_when_it_dies_is_told_and_can_be_replaced(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    await bench.fail_worker("a", 1)
    await _until_told(bench, "a", (1,), "failed")
    assert (await bench.cluster.observe()).workers == {"a": _on_n1(1)}
    await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n1")))
    assert (await bench.cluster.observe()).workers == {"a": _on_n1(2)}


async def test_watch_when_something_happens_yields_it_in_order(bench: Bench) -> None:
    await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
    await bench.cluster.apply(HaltJob(job_id="a"))
    watch = bench.cluster.watch()
    assert isinstance(await anext(watch), WorkerStarted)
    assert isinstance(await anext(watch), WorkerExited)
