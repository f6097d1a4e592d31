"""Books in which gangs run."""

from tests.unit.cells.clusters import a_book
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import GangStarts
from voda.cells.gangs import GangRequest
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
