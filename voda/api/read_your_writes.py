"""Lets callers read their own writes, whichever replica answers: an answer carries the position of the log that it
shows, and a request can ask for that position.

Rule: a request for a later position waits until the log is read that far; none is answered from an earlier state.
"""

from typing import Final

from aiohttp import web
from msgspec.structs import fields

from voda.api.operation import PUBLIC, Operation
from voda.application.journal import Journal
from voda.domain.errors import InvalidField

POSITION: Final = "Voda-Position"
"""Header of an answer: the position of the log that it shows, or that it wrote."""
AFTER: Final = "after"
AFTER_DESCRIPTION: Final = (
    "Answer only once the log was read up to this position, such as the Voda-Position of an earlier answer, whichever"
    " replica gave it."
)


def takes_position(operation: Operation) -> bool:
    """Return whether requests may ask for a position; an operation with `after` in its own query reads it itself."""
    names = {field.encode_name for field in fields(operation.query)} if operation.query is not None else set()
    return operation.roles is not PUBLIC and AFTER not in names


async def wait_for_position(request: web.Request, journal: Journal) -> web.Request:
    """Wait until the log is read as far as the request asks, and return the request without that parameter."""
    if AFTER not in request.query:
        return request
    positions = request.query.getall(AFTER)
    if len(positions) > 1 or not positions[0].isascii() or not positions[0].isdecimal() or len(positions[0]) > 18:
        raise InvalidField(AFTER, f"after: expected one position of the log, got {', '.join(positions)[:80]!r}")
    after = int(positions[0])
    if after > journal.view.position:
        refuse_future_position(after, await journal.store.position())
        await journal.view.wait_for(after)
    return request.clone(rel_url=request.rel_url.without_query_params(AFTER))


def refuse_future_position(after: int, end: int) -> None:
    """Refuse a position behind the end of the log with InvalidField."""
    if after > end:
        raise InvalidField(
            AFTER, f"position {after} is beyond the end of the log, which is at {end}: it is of another log"
        )


def set_position(response: web.StreamResponse, position: int) -> None:
    """Set the position in an answer's headers; a stream, which is sent already, carries positions itself."""
    if not response.prepared:
        response.headers[POSITION] = str(position)
