"""Defragmentation over HTTP: what moves, what comes of it, and who may ask, one at a time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.builders import a_node, a_spec
from tests.integration.api.test_jobs import tokens
from tests.service import Service, a_service
from tests.unit.planner.virtual_clusters.pools import some_cells
from tests.unit.projections.test_shares import CARD, a_share
from voda.api.schemas.base import Problem
from voda.api.schemas.defragmentation import (
    DefragmentationList,
    DefragmentationView,
    NodeCardView,
    ShareMoveView,
)
from voda.application.defragment import MovablePods
from voda.domain.gpus import Gpus
from voda.domain.shares import RESTARTABLE
from voda.events.types import (
    DefragmentationRequested,
    JobSubmitted,
    NodeDrainRequested,
    NodeJoined,
    ShareAssigned,
    ShareReleased,
    VirtualClustersApplied,
    WorkerStarted,
)

PATH = "/api/v1/defragmentation"
CHOSEN: Mapping[str, Any] = {"metadata": {"annotations": {RESTARTABLE: "true"}}}


async def add_job(
    service: Service, job_id: str, milli: int, *, card: int, manifest: Mapping[str, Any] = CHOSEN
) -> None:
    share = a_share(milli, card=card)
    spec = a_spec(job_id, share=share.request, gpus_per_replica=Gpus(0), manifest=manifest)
    await service.happens(JobSubmitted(spec=spec))
    pod = f"default/{job_id}"
    await service.happens(ShareAssigned(node="n1", pod_uid=job_id, pod=pod, containers={"share": share}))
    await service.happens(WorkerStarted(job_id=job_id, workers={0: "n1"}))


async def add_machine(service: Service) -> None:
    """Add a machine of two cards, each with one part; that of `b` is for no move."""
    await service.happens(NodeJoined(node=a_node("n1", gpus=2, devices=(CARD,) * 2)))
    await add_job(service, "a", 300, card=0)
    await add_job(service, "b", 400, card=1, manifest={})


async def requested(service: Service, query: str = "") -> DefragmentationView:
    answer = await service.ask("POST", f"{PATH}?{query}")
    (pool,) = answer.as_a(DefragmentationList).items
    return pool


async def plans(service: Service) -> list[DefragmentationRequested]:
    events = await service.backend.store.read(0, 100)
    return [event.data for event in events if isinstance(event.data, DefragmentationRequested)]


async def test_request_says_what_moves_and_what_is_free_then_and_the_log_has_it() -> None:
    async with a_service(nodes={}) as service:
        await add_machine(service)
        dry = await requested(service, "dry_run=true")
        assert dry == DefragmentationView(
            pool="default",
            is_requested=False,
            moves=(
                ShareMoveView(
                    pod="default/a",
                    pod_uid="a",
                    milli=300,
                    memory_mib=0,
                    source=NodeCardView(node="n1", card=0),
                    target=NodeCardView(node="n1", card=1),
                ),
            ),
            cards=(NodeCardView(node="n1", card=0),),
            whole_free_cards=0,
            whole_free_cards_after=1,
            fragment_milli=0.0,
            fragment_milli_after=150.0,
            note="",
        )
        assert await plans(service) == []
        done = await requested(service)
        assert (done.is_requested, done.moves) == (True, dry.moves)
        (fact,) = await plans(service)
        assert [(move.pod_uid, str(move.source), str(move.target)) for move in fact.moves] == [
            ("a", "card 0 of n1", "card 1 of n1")
        ]
        again = await service.ask("POST", PATH)
        assert (again.status, "of 1 move requested by" in again.as_a(Problem).detail) == (409, True)


async def test_request_while_moves_are_under_way_is_refused_and_a_dry_run_says_which() -> None:
    async with a_service(nodes={}) as service:
        await add_machine(service)
        await requested(service)
        # The one that moves has left its card: what is left has nothing that a plan could move.
        await service.happens(ShareReleased(node="n1", pod_uid="a", pod="default/a", reason="it moves"))
        under_way = (
            "moves are under way: of 1 move requested by admin, 0 are done; the rest, until 22:23:20 UTC at the most:"
            " default/a from card 0 of n1 to card 1 of n1"
        )
        again = await service.ask("POST", PATH)
        assert (again.status, again.as_a(Problem).detail) == (
            409,
            f"pool default: {under_way}; ask again then, or once they are done",
        )
        dry = await requested(service, "dry_run=true")
        assert (dry.is_under_way, dry.note, dry.moves) == (True, under_way, ())


async def test_nothing_moves_where_nobody_lets_it_and_the_answer_says_why() -> None:
    async with a_service(nodes={}) as service:
        await service.happens(NodeJoined(node=a_node("n1", gpus=2, devices=(CARD,) * 2)))
        assert (await requested(service)).note == "no card is shared on a node that pods may come to"
        await add_job(service, "b", 400, card=1, manifest={})
        assert (await requested(service)).note.startswith("the one shared card has a share that is not to be moved")
        await add_job(service, "a", 700, card=0)
        assert "does not fit on other shared cards by 10 moves" in (await requested(service)).note
        await service.happens(NodeDrainRequested(name="n1"))
        assert (await requested(service)).note == "no card is shared on a node that pods may come to"
        assert await plans(service) == []


async def test_jobs_of_a_pool_with_virtual_clusters_stay() -> None:
    async with a_service(nodes={}) as service:
        await add_machine(service)
        cells = some_cells({"vision": {"node.gpu": 1}, "speech": {"node.gpu": 1}})
        await service.happens(VirtualClustersApplied(pool="default", cells=cells))
        found = await requested(service)
        assert (found.moves, "virtual clusters" in found.note) == ((), True)


async def test_pods_that_may_be_moved_go_where_they_may_be() -> None:
    nodes, closed = {"u": ["n1", "n2"]}, dict[str, list[int]]()
    async with a_service(nodes={}, movable_pods=lambda: MovablePods(nodes=nodes, closed=closed)) as service:
        for name, uid in (("n1", "u"), ("n2", "v")):
            await service.happens(NodeJoined(node=a_node(name, gpus=0, devices=(CARD,))))
            await service.happens(
                ShareAssigned(node=name, pod_uid=uid, pod=f"ml/{uid}", containers={"c": a_share(400)})
            )
        (move,) = (await requested(service, "dry_run=true")).moves
        assert (move.pod, move.target) == ("ml/u", NodeCardView(node="n2", card=0))
        closed["n2"] = [0]
        assert (await requested(service, "dry_run=true")).moves == ()


async def test_request_is_for_operators_and_its_query_is_checked(tmp_path: Path) -> None:
    access, anna, _, _ = tokens(tmp_path)
    admin = access.add("boss", "admin")
    async with a_service(access=access) as service:
        assert (await service.ask("POST", PATH, token=anna)).status == 403
        assert (await service.ask("POST", PATH, token=admin)).status == 200
        assert (await service.ask("POST", f"{PATH}?moves=0", token=admin)).status == 422
        assert (await service.ask("POST", f"{PATH}?pool=v10", token=admin)).status == 404
