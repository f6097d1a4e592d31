"""Where gangs go, whom they preempt, and why they wait."""

import pytest

from tests.unit.cells.clusters import a_book, a_cluster, a_gang
from tests.unit.cells.running import nodes_of, run, running
from voda.cells.adoption import adopt, start
from voda.cells.decisions import Blocker, GangPreempts, GangStarts, GangWaits, WaitReason
from voda.cells.gangs import OPPORTUNISTIC
from voda.cells.health import set_node_bad
from voda.cells.requests import RefusalReason, RequestRefused
from voda.cells.scheduling import Conditions, decide
from voda.cells.search.losses import GangLoss, ReclaimStep


def test_gang_when_its_quota_is_free_starts_in_it() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}))
    decision = decide(book, a_gang("g", "a", (1, 2), (2, 1)), 2)
    assert isinstance(decision, GangStarts)
    assert [(worker.node, worker.devices, worker.quota) for worker in decision.placement] == [
        ("r0n0", (0,), "node"),
        ("r0n0", (1,), "node"),
        ("r0n0", (2, 3), "node"),
    ]
    assert decision.slot == 2


def test_gang_when_it_is_larger_than_any_quota_waits_and_says_so() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {"rack.node": 2}}))
    decision = decide(book, a_gang("g", "a", (3, 4)), 4)
    assert isinstance(decision, GangWaits)
    assert str(decision.blockers[0]) == (
        "rack: too few cells of the virtual cluster's quota are free or used by lower priorities"
    )


def test_gang_when_the_quota_is_fragmented_by_others_has_its_whole_node() -> None:
    book = running(
        a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {"rack.node": 1}}), *[a_gang(f"a{n}") for n in range(4)]
    )
    assert nodes_of(book, "a0") == nodes_of(book, "a3") == ["r0n0"]
    run(book, a_gang("b", "b", (1, 4)))
    assert nodes_of(book, "b") == ["r0n1"]


def test_gang_when_a_lower_priority_has_its_quota_preempts_it_whole() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack": 1}}), a_gang("low", "a", (2, 4)))
    decision = decide(book, a_gang("high", "a", (1, 1), priority=1), 1)
    assert isinstance(decision, GangPreempts)
    assert decision.victims == ("low",)
    assert isinstance(decide(book, a_gang("equal", "a", (1, 1)), 1), GangWaits)


def test_gang_when_the_lower_priority_yields_takes_its_guarantee_and_not_its_cells() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}), a_gang("low", "a", (1, 4), yields=True))
    run(book, a_gang("high", "a", (1, 4), priority=1))
    assert (nodes_of(book, "low"), nodes_of(book, "high")) == (["r0n0"], ["r0n1"])
    assert book.gangs["low"].downgraded_by == "high"


def test_gang_when_opportunistic_work_has_its_cells_preempts_the_least_of_it() -> None:
    spec = a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {}})
    book = running(spec, a_gang("o", "b", (1, 2), priority=-1))
    run(book, a_gang("g", "a", (1, 4)))
    assert nodes_of(book, "g") == ["r0n1"]
    more = a_book(spec)
    for name in ("o", "p"):
        run(more, a_gang(name, "b", (1, 4), priority=-1))
    decision = decide(more, a_gang("g", "a", (1, 4)), 4)
    assert isinstance(decision, GangPreempts)
    assert len(decision.victims) == 1


def test_opportunistic_gang_when_nodes_are_partly_used_stays_away_from_guaranteed_work() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}), a_gang("g"), a_gang("o", "a", priority=-1))
    assert (nodes_of(book, "g"), nodes_of(book, "o")) == (["r0n0"], ["r0n1"])
    run(book, a_gang("p", "a", (1, 2), priority=-1))
    assert nodes_of(book, "p") == ["r0n1"]


def test_opportunistic_gang_when_nothing_is_idle_waits_and_preempts_nobody() -> None:
    book = running(a_cluster(boxes=1, quotas={"a": {}}), a_gang("o", "a", (1, 2), priority=-1))
    decision = decide(book, a_gang("p", "a", priority=-1), 1)
    assert isinstance(decision, GangWaits)
    assert decision.blockers[0].reason == WaitReason.NOT_IDLE


def test_gang_when_only_bad_nodes_are_left_for_its_quota_waits_and_names_one() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack": 1}}))
    set_node_bad(book, "r0n1")
    decision = decide(book, a_gang("g", "a", (2, 4)), 4)
    assert isinstance(decision, GangWaits)
    assert str(decision.blockers[0]) == "rack: a quota cell that it needs is on a bad node (r0n1)"
    assert isinstance(decide(book, a_gang("g", "a", (1, 4)), 4), GangStarts)


def test_gang_when_the_smallest_free_cells_are_bad_splits_a_larger_one_that_nobody_is_owed() -> None:
    spec = a_cluster(racks=3, quotas={"a": {"rack.node": 2}, "b": {"rack": 1}})
    book = running(spec, a_gang("g0", "a", (1, 4)))
    buddy = {"r0n0": "r0n1", "r1n0": "r1n1", "r2n0": "r2n1"}[nodes_of(book, "g0")[0]]
    set_node_bad(book, buddy)
    run(book, a_gang("g1", "a", (1, 4)))
    assert nodes_of(book, "g1") not in ([buddy], nodes_of(book, "g0"))
    tight = running(a_cluster(racks=2, quotas={"a": {"rack.node": 2}, "b": {"rack": 1}}), a_gang("g0", "a", (1, 4)))
    set_node_bad(tight, "r0n1")
    assert isinstance(decide(tight, a_gang("g1", "a", (1, 4)), 4), GangWaits)


def test_gang_when_nodes_are_suggested_and_insisted_on_uses_no_other() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {"rack.node": 1}}))
    strict = a_gang("g", "a", (1, 4), ignores_suggestions=False)
    decision = decide(book, strict, 4, Conditions(suggested={"r1n1"}))
    assert isinstance(decision, GangStarts)
    assert decision.placement[0].node == "r1n1"
    waiting = decide(book, strict, 4, Conditions(suggested={"elsewhere"}))
    assert isinstance(waiting, GangWaits)
    assert waiting.blockers[0].reason == WaitReason.MAPPING_NEEDS_UNUSABLE


def test_gang_when_pinned_to_a_cell_uses_that_alone() -> None:
    book = a_book(a_cluster(racks=2, quotas={"a": {"rack.node": 1}}, pins="a"))
    run(book, a_gang("free", "a", (1, 4)))
    run(book, a_gang("pinned", "a", (1, 4), pin="pin"))
    assert nodes_of(book, "pinned") == ["r0n0"]
    assert nodes_of(book, "free") != ["r0n0"]


def test_gang_when_it_runs_gives_each_worker_the_next_place_and_refuses_one_too_many() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}))
    request = a_gang("g", "a", (2, 1))
    for worker, slot in (("first", 0), ("second", 1)):
        decision = decide(book, request, 1)
        assert isinstance(decision, GangStarts)
        assert decision.slot == slot
        start(book, request, decision.placement, slot=slot, worker=worker)
    with pytest.raises(RequestRefused, match="gang g declares 2 workers of 1 devices") as refused:
        decide(book, request, 1)
    assert refused.value.reason == RefusalReason.TOO_MANY_WORKERS


def test_late_worker_when_its_gang_is_being_preempted_waits() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}), a_gang("low", "a", (2, 2)))
    high = a_gang("high", "a", (1, 4), priority=1)
    adopt(book, high, decide(book, high, 4), "h")
    decision = decide(book, a_gang("low", "a", (2, 2)), 2)
    assert isinstance(decision, GangWaits)
    assert decision.blockers[0].reason == WaitReason.BEING_PREEMPTED


def test_gang_when_what_is_lost_is_known_shrinks_before_it_halts_and_loses_the_least() -> None:
    spec = a_cluster(racks=2, quotas={"a": {"rack.node": 1}, "b": {}})
    book = running(spec, *(a_gang(f"o{number}", "b", (1, 4), priority=-1) for number in range(4)))

    def victims(*losses: tuple[ReclaimStep, float]) -> tuple[str, ...]:
        lost = {f"o{number}": GangLoss(*loss, since=number) for number, loss in enumerate(losses)}
        decision = decide(book, a_gang("g", "a", (1, 4)), 4, Conditions(losses=lost))
        assert isinstance(decision, GangPreempts)
        return decision.victims

    shrink, minimum, halt = ReclaimStep.SHRINK, ReclaimStep.MINIMUM, ReclaimStep.HALT
    assert victims((halt, 1.0), (minimum, 50.0), (shrink, 900.0), (shrink, 800.0)) == ("o3",)
    assert victims((halt, 1.0), (minimum, 50.0), (minimum, 40.0), (halt, 0.0)) == ("o2",)
    assert victims((shrink, 5.0), (shrink, 5.0), (shrink, 9.0), (halt, 5.0)) == ("o1",)
    assert victims((shrink, 5.0), (shrink, 5.0), (shrink, 5.0), (shrink, 5.0)) == ("o3",)
    assert victims((shrink, 1.0), (shrink, 1.0), (shrink, 1.0)) == ("o2",)


def test_gang_when_what_another_leaves_is_bad_is_placed_on_the_healthy_rest() -> None:
    spec = a_cluster(racks=1, quotas={"a": {"rack.node": 2}})
    book = running(spec, a_gang("low", "a", (1, 4), (2, 2), yields=True))
    set_node_bad(book, "r0n1")
    decision = decide(book, a_gang("high", "a", (4, 1), priority=1), 1)
    assert isinstance(decision, GangPreempts)
    assert {worker.node for worker in decision.placement} == {"r0n0"}
    assert (decision.downgrades, decision.victims) == (("low",), ("low",))


def test_gang_when_free_cells_suffice_costs_nobody_the_least_loss() -> None:
    spec = a_cluster(racks=1, quotas={"a": {"rack.node": 1}, "b": {}})
    book = running(spec, a_gang("o", "b", (1, 4), priority=-1))
    losses = {"o": GangLoss(ReclaimStep.SHRINK, 0.5)}
    assert isinstance(decide(book, a_gang("g", "a", (1, 4)), 4, Conditions(losses=losses)), GangStarts)


def test_reservation_when_its_place_is_bad_or_not_suggested_is_made_anew() -> None:
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 2}}), a_gang("low", "a", (1, 4)))
    run(book, a_gang("same", "a", (1, 4)))
    high = a_gang("high", "a", (1, 4), priority=1, ignores_suggestions=False)
    reserved = decide(book, high, 4)
    assert isinstance(reserved, GangPreempts)
    adopt(book, high, reserved, "h")
    (place,) = {worker.node for worker in reserved.placement}
    (other,) = {"r0n0", "r0n1"} - {place}
    for suggested in (None, {place}, {place, other}):
        kept = decide(book, high, 4, Conditions(suggested=suggested))
        assert (isinstance(kept, GangPreempts), kept.cancels) == (True, ())
    moved = decide(book, high, 4, Conditions(suggested={other}))
    assert isinstance(moved, GangPreempts)
    assert (moved.cancels, moved.placement[0].node) == (("high",), other)
    set_node_bad(book, place)
    assert decide(book, high, 4).cancels == ("high",)
    assert isinstance(kept := decide(book, high, 4, Conditions(may_preempt=False)), GangPreempts)
    assert (kept.cancels, kept.placement[0].node) == ((), place)


def test_gang_when_it_runs_on_a_bad_node_insists_on_its_place() -> None:
    pair = a_gang("pair", "a", (2, 2))
    book = running(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}), pair)
    set_node_bad(book, "r0n0")
    late = decide(book, pair, 2)
    assert isinstance(late, GangStarts)
    assert (late.cancels, late.placement[late.slot].node) == ((), "r0n0")


def test_gang_when_the_nodes_that_it_lacks_are_healthy_and_not_suggested_is_told_of_one() -> None:
    book = a_book(a_cluster(racks=1, quotas={"a": {"rack.node": 1}}))
    set_node_bad(book, "r0n1")
    strict = a_gang("g", "a", (1, 4), priority=OPPORTUNISTIC, ignores_suggestions=False)
    waits = decide(book, strict, 4, Conditions(suggested={"r0n1"}))
    assert isinstance(waits, GangWaits)
    assert waits.blockers == (Blocker("rack", WaitReason.IDLE_NOT_SUGGESTED, "r0n0"),)
