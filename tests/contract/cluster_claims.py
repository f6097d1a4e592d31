"""What every adapter of the Cluster port promises, said once; each adapter brings a Bench.

How simulated jobs train is in tests/unit/simulator.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from voda.cluster.port import Cluster, Notice
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob
from voda.events.types import JobCompleted, NodeRoomChanged, WorkerExited, WorkerStarted

POOL = "default"
_QUIET_S = 0.4


class ActingCluster(Cluster, Protocol):
    """One that can be told of one job at a time, and that then raises why it does not do it."""

    async def apply(self, action: Action) -> None:
        """Begin one action."""
        ...


class Bench(Protocol):
    """A cluster of one node `n1` with 4 GPUs, and the jobs `a` and `b` (1..4 workers) made known."""

    cluster: ActingCluster
    is_patient: bool
    """Whether what cannot be done now is done once it can, rather than refused; so are workers that died replaced."""

    def notices(self) -> Sequence[Notice]:
        """Return all that was told so far."""
        ...

    def watch(self) -> AsyncIterator[Notice]:
        """Return Cluster.watch; where the bench itself watches from the beginning, what it has got."""
        ...

    def finish(self, job_id: str) -> None:
        """Let a running job end well."""
        ...

    async def fail_worker(self, job_id: str, index: int) -> None:
        """Let a worker of a running job die."""
        ...

    def refusing(self, match: str) -> AbstractContextManager[object]:
        """Expect a refusal, unless the cluster is patient."""
        ...

    async def rest(self) -> None:
        """Return once nothing is under way."""
        ...

    async def until_it_is(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds; see to it meanwhile that what the cluster needs runs."""
        ...


class Quiet:
    """Tells whether something has stayed the same for a while."""

    def __init__(self) -> None:
        self._last: object = None
        self._since = _now_s()

    def holds(self, now: object) -> bool:
        """Say whether it has."""
        if now != self._last:
            self._last, self._since = now, _now_s()
        return _now_s() - self._since >= _QUIET_S


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _until_shown(bench: Bench, workers: dict[str, dict[int, str]]) -> None:
    async def shown() -> bool:
        return (await bench.cluster.observe()).workers == workers

    await bench.until_it_is(shown)


async def _until_told(bench: Bench, job_id: str, indices: tuple[int, ...], cause: str) -> None:
    async def told() -> bool:
        """One cause may be told of all together, or of one after the other."""
        exits = [each for each in bench.notices() if isinstance(each, WorkerExited)]
        mine = [each.workers for each in exits if (each.job_id, each.cause) == (job_id, cause)]
        return sorted(index for workers in mine for index in workers) == list(indices)

    await bench.until_it_is(told)


def _told_of_jobs(bench: Bench) -> list[Notice]:
    """Return what was told but of the room that others' pods leave, such as launchers: that comes now and then."""
    return [notice for notice in bench.notices() if not isinstance(notice, NodeRoomChanged)]


def _on_n1(size: int) -> dict[int, str]:
    return dict.fromkeys(range(size), "n1")


class ClusterClaims:
    """The claims."""

    async def test_start_when_applied_is_observed_and_told(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
        await _until_shown(bench, {"a": _on_n1(2)})
        observed = await bench.cluster.observe()
        assert observed.gpus_per_replica == {"a": 1}
        assert observed.nodes["n1"].gpus == 4
        await bench.rest()
        started = [notice for notice in bench.notices() if isinstance(notice, WorkerStarted)]
        assert {index: node for notice in started for index, node in notice.workers.items()} == _on_n1(2)
        assert _told_of_jobs(bench) == started
        assert len(started) <= 2

    async def test_actions_when_repeated_change_nothing_more(self, bench: Bench) -> None:
        actions: list[tuple[Action, int]] = [
            (StartJob(job_id="a", nodes=("n1",)), 1),
            (ResizeJob(job_id="a", nodes=("n1",) * 3), 3),
            (ResizeJob(job_id="a", nodes=("n1",) * 2), 2),
            (HaltJob(job_id="a"), 0),
            (StopJob(job_id="a", reason="canceled"), 0),
        ]
        for action, size in actions:
            await bench.cluster.apply(action)
            await bench.cluster.apply(action)
            await _until_shown(bench, {"a": _on_n1(size)} if size else {})
            await bench.rest()
            told = _told_of_jobs(bench)
            before = await bench.cluster.observe()
            await bench.cluster.apply(action)
            await bench.rest()
            assert await bench.cluster.observe() == before
            assert _told_of_jobs(bench) == told

    async def test_action_when_the_job_is_gone_does_nothing_or_is_refused(self, bench: Bench) -> None:
        await bench.cluster.apply(HaltJob(job_id="ghost"))
        await bench.cluster.apply(StopJob(job_id="ghost", reason="unknown"))
        with bench.refusing("job ghost: not known"):
            await bench.cluster.apply(StartJob(job_id="ghost", nodes=("n1",)))
        await bench.rest()
        assert (await bench.cluster.observe()).workers == {}

    async def test_desired_of_a_job_that_cannot_be_done_holds_up_no_other_and_is_tried_again(
        self, bench: Bench
    ) -> None:
        desired = [StartJob(job_id="ghost", nodes=("n1",)), StartJob(job_id="a", nodes=("n1",))]
        again_at = await bench.cluster.set_desired(desired)
        await _until_shown(bench, {"a": _on_n1(1)})
        assert bench.is_patient == math.isinf(again_at)
        assert math.isinf(await bench.cluster.set_desired(desired[1:]))

    async def test_start_when_there_is_no_room_is_begun_with_no_worker(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 3))
        await _until_shown(bench, {"a": _on_n1(3)})
        with bench.refusing("job b: needs 2 more GPUs on node n1, 1 free"):
            await bench.cluster.apply(StartJob(job_id="b", nodes=("n1", "n1")))
        await bench.rest()
        assert (await bench.cluster.observe()).workers == {"a": _on_n1(3)}
        await bench.cluster.apply(StartJob(job_id="b", nodes=("n1",)))
        await _until_shown(bench, {"a": _on_n1(3), "b": _on_n1(1)})

    async def test_start_when_the_node_is_unknown_is_begun_with_no_worker(self, bench: Bench) -> None:
        with bench.refusing(r"job a: needs .*GPUs on node n9"):
            await bench.cluster.apply(StartJob(job_id="a", nodes=("n9",)))
        await bench.rest()
        assert (await bench.cluster.observe()).workers == {}

    async def test_shrink_when_applied_takes_the_highest_indices(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 3))
        await _until_shown(bench, {"a": _on_n1(3)})
        await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1",)))
        await _until_shown(bench, {"a": _on_n1(1)})
        await bench.rest()
        gone = [notice.workers for notice in bench.notices() if isinstance(notice, WorkerExited)]
        assert sorted(index for workers in gone for index in workers) == [1, 2]

    async def test_gpus_when_a_job_is_halted_can_be_given_to_another(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 4))
        await _until_shown(bench, {"a": _on_n1(4)})
        await bench.cluster.apply(HaltJob(job_id="a"))
        await _until_shown(bench, {})
        await bench.cluster.apply(StartJob(job_id="b", nodes=("n1",) * 4))
        await _until_shown(bench, {"b": _on_n1(4)})

    async def test_job_when_halted_can_be_started_again(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",)))
        await _until_shown(bench, {"a": _on_n1(1)})
        await bench.cluster.apply(HaltJob(job_id="a"))
        await _until_told(bench, "a", (0,), "stopped")
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
        await _until_shown(bench, {"a": _on_n1(2)})

    async def test_job_when_it_ends_well_is_told_before_its_workers_are(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1",) * 2))
        await _until_shown(bench, {"a": _on_n1(2)})
        bench.finish("a")
        await _until_told(bench, "a", (0, 1), "finished")
        told = [notice for notice in bench.notices() if isinstance(notice, JobCompleted | WorkerExited)]
        assert told[0] == JobCompleted(job_id="a")
        assert (await bench.cluster.observe()).workers == {}

    async def test_worker_when_it_dies_is_told_and_can_be_replaced(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
        await _until_shown(bench, {"a": _on_n1(2)})
        await bench.fail_worker("a", 1)
        await _until_told(bench, "a", (1,), "failed")
        if not bench.is_patient:
            assert (await bench.cluster.observe()).workers == {"a": _on_n1(1)}
        await bench.cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n1")))
        await _until_shown(bench, {"a": _on_n1(2)})

    async def test_watch_when_something_happens_yields_it_in_order(self, bench: Bench) -> None:
        await bench.cluster.apply(StartJob(job_id="a", nodes=("n1", "n1")))
        await _until_shown(bench, {"a": _on_n1(2)})
        await bench.cluster.apply(HaltJob(job_id="a"))
        watch = bench.watch()
        assert isinstance(await anext(watch), WorkerStarted)
        last = await anext(watch)
        while not isinstance(last, WorkerExited):
            assert isinstance(last, WorkerStarted)
            last = await anext(watch)
