"""Books in which gangs run."""

from tests.unit.cells.clusters import a_book
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook, open_book
from voda.cells.decisions import GangStarts
from voda.cells.gangs import GangRequest
from voda.cells.health import set_node_bad
from voda.cells.recovery import occupy
from voda.cells.scheduling import decide
from voda.domain.cells import CellsSpec


def running(spec: CellsSpec, *requests: GangRequest) -> CellBook:
    """Return the book of a cluster in which these gangs run, each with one worker that started."""
    book = a_book(spec)
    for request in requests:
        run(book, request)
    return book


def run(book: CellBook, request: GangRequest) -> None:
    """Let a gang run that has a place at once."""
    decision = decide(book, request, request.sizes[0])
    assert isinstance(decision, GangStarts), decision
    adopt(book, request, decision, request.name)
    start(book, request, decision.placement, slot=decision.slot, worker=request.name)


def nodes_of(book: CellBook, gang: str) -> list[str]:
    """Return the nodes that a gang is on, each once."""
    return list(dict.fromkeys(book.topology.nodes[leaf][0] for leaf in book.gangs[gang].leafs))


def reconfigured(book: CellBook, other: CellBook) -> CellBook:
    """Return the unused book of another configuration with what runs, in the order in which it came; `book` is kept."""
    fresh = open_book(other.topology, other.quotas)
    for node in sorted(book.bad_nodes):
        set_node_bad(fresh, node)
    for gang in book.gangs.values():
        if not gang.is_waiting:
            occupy(fresh, gang.request, gang.placement, workers=gang.workers)
    return fresh
