"""Read your writes, whichever replica answers: an answer tells how far the log was read, a request can ask for that.

Rule: one that asks for more than was read by then waits for it; none is answered with less.
"""

from typing import Final

from aiohttp import web
from msgspec.structs import fields

from voda.api.operation import PUBLIC, Operation
from voda.application.backend import Backend
from voda.domain.errors import InvalidField

POSITION: Final = "Voda-Position"
"""Header of an answer: the position of the log that it shows, or was written to it."""
AFTER: Final = "after"
AFTER_DESCRIPTION: Final = (
    "Answer only once the log was read up to this position, such as the Voda-Position of an earlier answer, whichever"
    " replica gave it."
)


def takes_position(operation: Operation) -> bool:
    """Say whether a position can be asked for; what follows the log has that for a parameter of its own."""
    names = {field.encode_name for field in fields(operation.query)} if operation.query is not None else set()
    return operation.roles is not PUBLIC and AFTER not in names


async def wait_for_position(request: web.Request, backend: Backend) -> web.Request:
    """Wait until the log is read as far as the request asks, and return it without that.

    Raises:
        InvalidField: it asks for what is no position of this log.
        StoreUnavailable: it was not read so far in time.
    """
    if AFTER not in request.query:
        return request
    asked = request.query.getall(AFTER)
    if len(asked) > 1 or not asked[0].isascii() or not asked[0].isdecimal() or len(asked[0]) > 18:
        raise InvalidField(AFTER, f"after: expected one position of the log, got {', '.join(asked)[:80]!r}")
    after = int(asked[0])
    if after > backend.view.position:
        refuse_future_position(after, await backend.store.position())
        await backend.view.reached(after)
    return request.clone(rel_url=request.rel_url.without_query_params(AFTER))


def refuse_future_position(after: int, end: int) -> None:
    """Refuse a position that the log, which ends at `end`, has not reached.

    Raises:
        InvalidField: as said.
    """
    if after > end:
        raise InvalidField(
            AFTER, f"position {after} is beyond the end of the log, which is at {end}: it is of another log"
        )


def set_position(response: web.StreamResponse, position: int) -> None:
    """Have an answer tell how far the log was read; one that is sent already is a stream, and tells by itself."""
    if not response.prepared:
        response.headers[POSITION] = str(position)
