"""Adoption: a decision becomes part of the book.

`adopt` notes what a decision changes at once: reservations made and withdrawn, guarantees lost. `start` notes that a
worker runs in its place; with the first one the gang uses all its cells.
"""

from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangPreempts, GangWaits
from voda.cells.gangs import GangPlacement, GangRequest
from voda.cells.preemption import cancel, downgrade, finish, reserve
from voda.cells.recovery import occupy


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
