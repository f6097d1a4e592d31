"""Shares that move on request, from fact to fact: one after the other, within their time, and as a replay decides."""

from collections.abc import Sequence

import pytest

from tests.builders import a_node, a_spec
from tests.unit.controller.test_reclaims import Stage
from voda.domain.gpus import CardShare, GpuDevice, GpuRequest, Gpus
from voda.domain.shares import NEW_PLACE_S, NodeCard, ShareMove
from voda.events.types import (
    DefragmentationRequested,
    JobSubmitted,
    NodeJoined,
    RatelimitChanged,
    ShareAssigned,
    ShareReleased,
    WorkerExited,
    WorkerStarted,
)
from voda.timetravel.verify import verify

BEGAN_AT = 1_000.0
MILLI = {"a": 300, "b": 300, "c": 200}
"""Each on the card of its place; they fit together on the last one."""


def a_move(job_id: str, card: int) -> ShareMove:
    source, target = NodeCard("n1", card), NodeCard("n1", 2)
    return ShareMove(
        pod_uid=job_id, pod=f"default/{job_id}", milli=MILLI[job_id], memory_mib=0, source=source, target=target
    )


async def start(stage: Stage, job_id: str, card: int) -> None:
    share = CardShare(cards=(card,), request=GpuRequest(milli=MILLI[job_id]))
    await stage.add(
        ShareAssigned(node="n1", pod_uid=job_id, pod=f"default/{job_id}", containers={"share": share}),
        WorkerStarted(job_id=job_id, workers={0: "n1"}),
    )


async def leave(stage: Stage, job_id: str) -> None:
    await stage.add(
        ShareReleased(node="n1", pod_uid=job_id), WorkerExited(job_id=job_id, workers=(0,), cause="stopped")
    )


@pytest.fixture
async def stage() -> Stage:
    """A machine of three cards, each with a job; those of the first two are to move to the third."""
    stage = Stage(at=BEGAN_AT)
    cards = (GpuDevice(memory_mib=16_000),) * 3
    await stage.add(
        NodeJoined(node=a_node("n1", gpus=3, devices=cards)), RatelimitChanged(pool="default", ratelimit_s=0.0)
    )
    await stage.controller.lead("me")
    for card, (job_id, milli) in enumerate(MILLI.items()):
        spec = a_spec(job_id, share=GpuRequest(milli=milli), gpus_per_replica=Gpus(0))
        await stage.add(JobSubmitted(spec=spec))
        await stage.controller.step()
        await start(stage, job_id, card)
    moves = a_move("a", 0), a_move("b", 1)
    await stage.add(DefragmentationRequested(pool="default", moves=moves, freed=(NodeCard("n1", 0), NodeCard("n1", 1))))
    await stage.controller.step()
    return stage


def planned(stage: Stage) -> Sequence[str]:
    return sorted(stage.controller.live.cluster.plan("default").placement)


async def test_second_share_moves_once_the_first_has_its_new_place(stage: Stage) -> None:
    assert planned(stage) == ["b", "c"]
    await leave(stage, "a")
    await stage.step_at(BEGAN_AT + 1)
    assert planned(stage) == ["a", "b", "c"]
    await start(stage, "a", 2)
    await stage.step_at(BEGAN_AT + 2)
    assert planned(stage) == ["a", "c"]
    await leave(stage, "b")
    await stage.step_at(BEGAN_AT + 3)
    await start(stage, "b", 2)
    await stage.step_at(BEGAN_AT + 4)
    assert planned(stage) == ["a", "b", "c"]
    assert stage.controller.live.cluster.shares.moves.kept_cards(BEGAN_AT + 4) is None
    assert (await verify(stage.store)).difference is None


async def test_second_share_moves_without_another_event_where_the_first_finds_no_place(stage: Stage) -> None:
    await leave(stage, "a")
    due_at = await stage.step_at(BEGAN_AT + 1)
    assert (planned(stage), due_at) == (["a", "b", "c"], BEGAN_AT + NEW_PLACE_S)
    await stage.step_at(due_at)
    assert planned(stage) == ["a", "c"]
    assert (await verify(stage.store)).difference is None


async def test_shares_stay_once_the_time_is_over(stage: Stage) -> None:
    assert planned(stage) == ["b", "c"]
    assert stage.controller.live.cluster.shares.moves.kept_cards(BEGAN_AT) == {"n1": {0, 1}}
    await stage.step_at(BEGAN_AT + 600)
    assert planned(stage) == ["a", "b", "c"]
    assert (await verify(stage.store)).difference is None


async def test_moves_when_the_leader_dies_go_on_where_they_were(stage: Stage) -> None:
    await leave(stage, "a")
    second = Stage(at=BEGAN_AT + 1)
    await second.replay(await stage.events())
    await second.controller.lead("other")
    await second.controller.step()
    assert planned(second) == ["a", "b", "c"]
    await start(second, "a", 2)
    await second.step_at(BEGAN_AT + 2)
    assert planned(second) == ["a", "c"]
    assert (await verify(second.store)).difference is None
