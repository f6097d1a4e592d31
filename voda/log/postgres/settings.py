"""What of a PostgreSQL server's settings would lose events that were answered.

Rule: as with NATS, a server that answers before it has written to the disk is refused, unless the URL takes it; which
setting, what it is and what it must be is said in one sentence. What a session can set, voda sets (postgres_engine).
"""

import logging
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from voda.domain.errors import InvalidInput

_FOUND: Final = text("SELECT current_setting('fsync', true), current_setting('full_page_writes', true)")

_log = logging.getLogger(__name__)


async def refuse_loose(connection: AsyncConnection, place: str, *, takes_any: bool) -> None:
    """Raise if a power cut may take what the server has answered, and say what else an operator should know.

    Args:
        connection: to the server.
        place: of the log.
        takes_any: only say it.

    Raises:
        InvalidInput: it may.
    """
    fsync, full_pages = (await connection.execute(_FOUND)).one()
    if fsync == "off":
        said = (
            f"{place}: the server has fsync=off, so a crash of its machine or a power cut loses events that were"
            " answered, or the whole database: expected fsync=on in its postgresql.conf"
        )
        if not takes_any:
            raise InvalidInput(f"{said}; or add ?sync=any to the URL to take the risk")
        _log.warning("%s", said)
    if full_pages == "off":
        _log.warning(
            "%s: the server has full_page_writes=off, so a power cut may leave pages of the database half written,"
            " unless its file system never does that, as ZFS: expected full_page_writes=on in its postgresql.conf",
            place,
        )
