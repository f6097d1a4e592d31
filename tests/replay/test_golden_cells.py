"""Decisions about cells over drawn sequences of operations, against the recorded ones.

Properties say that every decision is allowed; these files say which of the allowed ones it is: plans of logs that exist
rest on it. `pytest --update-golden` rewrites them, and a change of theirs needs a sentence in the commit.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.drawn import Cluster, drawn_cluster, drawn_request
from tests.unit.cells.running import reconfigured
from voda.cells.accounting import borrowed_leafs, quota_use
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangStarts, GangWaits
from voda.cells.gangs import GangPlacement, GangRequest
from voda.cells.health import doomed_cells, lacking_cells, set_node_bad, set_node_healthy
from voda.cells.preemption import cancel, end
from voda.cells.scheduling import decide
from voda.domain.errors import InvalidInput
from voda.domain.rng import rng_at

FOLDER = Path(__file__).parent / "cells"
SEQUENCES = 12
OPERATIONS = 30


@pytest.mark.parametrize("seed", range(4))
def test_decisions_about_cells_when_made_again_are_the_golden_ones(seed: int, update_golden: bool) -> None:
    random, lines = rng_at(seed, "golden cells"), list[str]()
    for number in range(SEQUENCES):
        lines += [f"sequence {number}", *_sequence(random)]
    golden = FOLDER / f"{seed}.txt"
    if update_golden:
        golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


def _sequence(random: Random) -> Iterator[str]:
    cluster = drawn_cluster(random)
    book = cluster.book()
    yield f"{cluster.racks} racks, {cluster.boxes} boxes, pins of {cluster.pins or 'none'}: {_quotas(cluster)}"
    for _ in range(OPERATIONS):
        kind = random.randrange(20)
        if kind < 11 or not book.gangs:
            yield _ask(book, drawn_request(random), starts=random.random() < 0.7)
        elif kind < 14:
            yield _finish(book, random.choice(list(book.gangs)))
        elif kind < 17:
            node, change = random.choice(list(book.topology.leafs_on)), random.choice((set_node_bad, set_node_healthy))
            change(book, node)
            yield f"{change.__name__} {node}: doomed {dict(doomed_cells(book))}, lacking {_lacking(book)}"
        elif kind < 19:
            # So that all that is drawn after it stays as it was recorded.
            random.choice(list(book.gangs))
        else:
            other = drawn_cluster(random)
            book = reconfigured(book, other.book())
            yield f"reconfigure to {_quotas(other)}: downgraded {_downgraded(book)}"
        assert_consistent(book)
    yield from (f"{key} {use}" for key, use in quota_use(book).items())
    yield from (f"{gang.name} {book.state(gang)} on {_places(gang.placement)}" for gang in book.gangs.values())
    yield f"borrowed {dict(borrowed_leafs(book))}"


def _ask(book: CellBook, request: GangRequest, *, starts: bool) -> str:
    sizes = "+".join(map(str, request.sizes))
    asked = f"{request.name} of {request.virtual_cluster} at {request.priority} {request.pin} {sizes}"
    gang = book.gangs.get(request.name)
    if gang is not None:
        return f"{asked}: is there"
    try:
        decision = decide(book, request, request.sizes[0])
    except InvalidInput as error:
        return f"{asked}: {error}"
    adopt(book, request, decision, "worker")
    if isinstance(decision, GangStarts) and starts:
        start(book, request, decision.placement, slot=decision.slot, worker="worker")
    return f"{asked}: {_outcome(decision)}"


def _outcome(decision: Decision) -> str:
    if isinstance(decision, GangWaits):
        return f"waits, {'; '.join(map(str, decision.blockers))}"
    changes = f"cancels {decision.cancels}, downgrades {decision.downgrades}"
    if isinstance(decision, GangStarts):
        return f"starts at {decision.slot} of {_places(decision.placement)}, {changes}"
    return f"preempts {decision.victims} on {_places(decision.placement)} by {dict(decision.virtual)}, {changes}"


def _finish(book: CellBook, name: str) -> str:
    is_waiting = book.gangs[name].is_waiting
    (cancel if is_waiting else end)(book, name)
    return f"{name} {'withdraws' if is_waiting else 'ends'}"


def _places(placement: GangPlacement) -> str:
    return " ".join(f"{cells.node}:{','.join(map(str, cells.devices))}:{cells.quota}" for cells in placement)


def _quotas(cluster: Cluster) -> str:
    return "; ".join(f"{name} {dict(each)}" for name, each in cluster.quotas.items())


def _downgraded(book: CellBook) -> str:
    return " ".join(gang.name for gang in book.gangs.values() if gang.downgraded_by) or "none"


def _lacking(book: CellBook) -> dict[tuple[str, str], int]:
    return {place: count for place, count in lacking_cells(book, book.quotas.clusters).items() if count}
