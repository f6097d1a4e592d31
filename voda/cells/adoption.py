"""Adoption: a decision becomes part of the book.

`adopt` notes what a decision changes at once: reservations made and withdrawn, guarantees lost. `start` notes that a
worker runs in its place; with the first one the gang uses all its cells.
"""

from msgspec.structs import replace

from voda.cells.book import CellBook, open_book
from voda.cells.decisions import Decision, GangPreempts, GangWaits
from voda.cells.gangs import GangPlacement, GangRequest
from voda.cells.health import set_node_bad
from voda.cells.preemption import cancel, downgrade, finish, reserve
from voda.cells.recovery import occupy
from voda.cells.structure.quotas import Quotas
from voda.cells.structure.topology import Topology


def adopt(book: CellBook, request: GangRequest, decision: Decision, worker: str, *, may_preempt: bool = True) -> None:
    """Note what a decision about a worker changes before it starts; the book is that in which it was decided."""
    for name in decision.cancels:
        cancel(book, name)
    if isinstance(decision, GangWaits):
        return
    for name in decision.downgrades:
        downgrade(book, name, request.name)
    gang = book.gangs.get(request.name)
    if gang is not None and gang.is_waiting:
        book.gangs[request.name] = replace(gang, waiting=gang.waiting | {worker})
    elif isinstance(decision, GangPreempts) and may_preempt:
        reserve(book, request, decision.placement, virtual=decision.virtual, worker=worker)


def start(book: CellBook, request: GangRequest, placement: GangPlacement, *, slot: int, worker: str) -> None:
    """Note that a worker starts in its place of the gang's placement."""
    gang = book.gangs.get(request.name)
    if gang is None:
        occupy(book, request, placement)
    elif gang.is_waiting:
        finish(book, gang)
    gang = book.gangs[request.name]
    book.gangs[request.name] = replace(gang, workers={**gang.workers, slot: worker})


def reconfigure(book: CellBook, topology: Topology, quotas: Quotas) -> CellBook:
    """Return the book of another configuration, in which everything that runs goes on.

    Gangs come back in the order in which they came; reservations do not. A gang whose quota is gone goes on without a
    guarantee (`Gang.downgraded_by`).
    """
    fresh = open_book(topology, quotas)
    for node in sorted(book.bad_nodes):
        set_node_bad(fresh, node)
    for gang in book.gangs.values():
        if not gang.is_waiting:
            occupy(fresh, gang.request, gang.placement, workers=gang.workers)
    return fresh
