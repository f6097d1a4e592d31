"""Reservations: kept while others leave, withdrawn without a trace."""

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.clusters import a_cluster, a_gang
from tests.unit.cells.running import nodes_of, running
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import GangPreempts, GangStarts, GangWaits
from voda.cells.gangs import GangRequest, GangState
from voda.cells.health import set_node_bad
from voda.cells.preemption import cancel, end, end_worker, reserve, stop_waiting
from voda.cells.scheduling import Conditions, decide

SPEC = a_cluster(racks=1, quotas={"a": {"rack.node": 1}})
LOW = a_gang("low", "a", (1, 4))
HIGH = a_gang("high", "a", (1, 4), priority=1)
HIGHER = a_gang("higher", "a", (1, 2), priority=2)


def test_reservation_when_made_keeps_equals_away_until_the_cells_are_free() -> None:
    book = running(SPEC, LOW)
    adopt(book, HIGH, decide(book, HIGH, 4), "h")
    assert book.state(book.gangs["low"]) == GangState.BEING_PREEMPTED
    assert isinstance(decide(book, a_gang("rival", "a", (1, 4), priority=1), 4), GangWaits)
    assert isinstance(decide(book, HIGH, 4), GangPreempts)
    end(book, "low")
    decision = decide(book, HIGH, 4)
    assert isinstance(decision, GangStarts)
    start(book, HIGH, decision.placement, slot=decision.slot, worker="h")
    assert book.state(book.gangs["high"]) == GangState.ALLOCATED
    assert_consistent(book)


def test_reservation_when_its_last_worker_gives_up_leaves_no_trace() -> None:
    book = running(SPEC, LOW)
    before = book.copy()
    adopt(book, HIGH, decide(book, HIGH, 4), "h")
    adopt(book, HIGH, decide(book, HIGH, 4), "i")
    stop_waiting(book, "high", "h")
    assert "high" in book.gangs
    stop_waiting(book, "high", "i")
    assert book == before
    stop_waiting(book, "high", "i")
    assert book == before


def test_reservation_when_withdrawn_with_another_bad_rack_to_show_leaves_the_user_its_guarantee() -> None:
    book = running(a_cluster(racks=2, quotas={"a": {"rack": 1}}), a_gang("low"))
    assert nodes_of(book, "low") == ["r0n0"]
    for node in ("r1n0", "r0n1"):
        set_node_bad(book, node)
    before = book.gangs["low"]
    reserve(book, a_gang("high", priority=1), before.placement, virtual=before.virtual, worker="h")
    cancel(book, "high")
    assert book.gangs["low"].virtual.keys() == before.virtual.keys()
    assert_consistent(book)


def test_reservation_when_a_higher_priority_wants_the_cells_is_withdrawn() -> None:
    book = running(SPEC, LOW)
    adopt(book, HIGH, decide(book, HIGH, 4), "h")
    decision = decide(book, HIGHER, 2)
    assert isinstance(decision, GangPreempts)
    assert (decision.victims, decision.cancels) == (("low",), ("high",))
    adopt(book, HIGHER, decision, "i")
    assert sorted(book.gangs) == ["higher", "low"]
    assert_consistent(book)


def test_reservation_when_a_higher_priority_starts_in_its_cells_is_withdrawn_with_the_start() -> None:
    book = running(SPEC, LOW)
    adopt(book, HIGH, decide(book, HIGH, 4), "h")
    end(book, "low")
    decision = decide(book, HIGHER, 2, Conditions(may_preempt=False))
    assert isinstance(decision, GangStarts)
    adopt(book, HIGHER, decision, "i", may_preempt=False)
    assert "high" in book.gangs
    start(book, HIGHER, decision.placement, slot=0, worker="i")
    assert list(book.gangs) == ["higher"]
    assert_consistent(book)


def test_gang_when_its_last_worker_is_over_frees_all_its_cells() -> None:
    book = running(SPEC, a_gang("g", "a", (2, 1)))
    start(book, book.gangs["g"].request, book.gangs["g"].placement, slot=1, worker="second")
    end_worker(book, "g", 0)
    assert len(book.gangs["g"].leafs) == 2
    end_worker(book, "g", 1)
    assert book.gangs == {}
    assert_consistent(book)


def test_reservation_when_its_first_cells_doom_a_larger_quota_is_bound_around_the_bad_node() -> None:
    spec = a_cluster(racks=2, quotas={"b": {"rack.node": 1, "rack.node.switch": 1, "rack": 1}})
    book = running(spec, a_gang("o", "b", (1, 4), priority=-1))
    set_node_bad(book, "r0n1")
    _reserve(book, a_gang("g", "b", (1, 4), (2, 2)))
    assert set(book.gangs["g"].virtual) == set(book.gangs["g"].leafs)
    assert_consistent(book)
    cancel(book, "g")
    assert_consistent(book)


def test_reservation_when_the_one_that_it_ends_shows_a_bad_node_there_is_bound_to_another_cell() -> None:
    book = running(a_cluster(racks=1, quotas={"c": {"rack": 1}}), a_gang("o", "c", (2, 4), priority=-1))
    _reserve(book, a_gang("low", "c", (4, 1)))
    set_node_bad(book, "r0n1")
    _reserve(book, a_gang("high", "c", priority=1))
    assert set(book.gangs["high"].virtual) == set(book.gangs["high"].leafs)
    assert_consistent(book)
    cancel(book, "high")
    assert_consistent(book)


def _reserve(book: CellBook, request: GangRequest) -> None:
    decision = decide(book, request, request.sizes[0])
    assert isinstance(decision, GangPreempts)
    adopt(book, request, decision, request.name)
