"""Claims about the whole simulator: the published results of the Pollux paper come out of it, job by job.

Two workloads of five, at one load; `make fidelity` runs all of them.
"""

import functools
from collections.abc import Sequence

import pytest

from benchmarks.fidelity_peer import POLICIES, Case, compare, peer_run
from tests.public_data import folder_or_skip
from voda.controller.follower import catch_up
from voda.events.envelope import Event
from voda.events.types import PlanAdopted
from voda.projections.history import History
from voda.simulator.data import POLLUX
from voda.simulator.engine import SimulationRun


@pytest.mark.parametrize("workload", [3, 6])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_jct_is_the_published_one_to_the_second(workload: int, policy: str) -> None:
    folder_or_skip(POLLUX)
    compared = compare(Case(workload=workload, load=1, policy=policy))
    assert (compared.exact, compared.ours_s) == (compared.jobs, compared.published_s)


@pytest.mark.parametrize(("policy", "starts"), [("tiresias", 203), ("optimus", 1030)])
async def test_jobs_are_restarted_as_often_as_by_the_peer(policy: str, starts: int) -> None:
    folder_or_skip(POLLUX)
    history = History()
    ran = await peer_run(Case(workload=6, load=1, policy=policy))
    await catch_up(ran.store, [], after=0, on_event=history.apply)
    assert sum(1 + job.restarts for job in history.finished) == starts


async def test_first_jobs_sit_where_the_peer_puts_them() -> None:
    folder_or_skip(POLLUX)
    placed = await _placed(await peer_run(Case(workload=6, load=1, policy="tiresias")))
    assert placed[:6] == [
        (60, "cifar10-0", [0, 0, 0, 0, 1, 1]),
        (180, "cifar10-1", [2, 2, 2, 2, 3, 3]),
        (360, "deepspeech2-2", [4, 4, 4, 4, 5, 5, 5, 5]),
        (420, "cifar10-3", [node for node in (6, 7, 8, 9) for _ in range(4)]),
        (780, "bert-4", [node for node in (10, 11) for _ in range(4)]),
        (1320, "cifar10-5", [node for node in (0, 1, 2) for _ in range(4)]),
    ]


async def _placed(ran: SimulationRun) -> Sequence[tuple[float, str, list[int]]]:
    """Return (seconds since the beginning, job, nodes by number) of every placement, in the order of the log."""
    number = {node.name: index for index, node in enumerate(ran.workload.nodes)}
    placed: list[tuple[float, str, list[int]]] = []
    await catch_up(ran.store, [], after=0, on_event=functools.partial(_note, placed, number, ran.workload.begins_at))
    return placed


def _note(placed: list[tuple[float, str, list[int]]], number: dict[str, int], begins_at: float, event: Event) -> None:
    if isinstance(event.data, PlanAdopted):
        at_s = event.recorded_at - begins_at
        placed += [(at_s, job_id, [number[node] for node in nodes]) for job_id, nodes in event.data.placed.items()]
