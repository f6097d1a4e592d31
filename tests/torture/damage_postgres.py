"""Damage to the files of a PostgreSQL log's tables and indexes, while the server is down.

Rule: one damage at a time to a sound database; the server is started, judged, stopped, and the file mended.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.postgres import Server, serving
from tests.torture.damage_judge import Report, Truth, a_damage, filled, judged
from voda.domain.rng import rng_at
from voda.log.factory import open_store

_EVENTS: Final = 400
_FILES: Final = (
    "SELECT c.relname || ' ' || pg_relation_filepath(c.oid) FROM pg_class c"
    " WHERE c.relkind IN ('r', 'i', 't') AND (c.relnamespace = 'public'::regnamespace OR c.oid IN"
    " (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'public'::regnamespace))"
)


def torture(*, rounds: int, seed: int, has_checksums: bool) -> Report:
    """Damage the same log in so many ways, one at a time.

    Args:
        rounds: each costs a start of the server.
        seed: of the damages.
        has_checksums: of the data pages (`initdb --data-checksums`).
    """
    report = Report()
    with serving() as server:
        url = server.create_database()
        truth = asyncio.run(filled(url, _EVENTS))
        files = _files_of(server, url)
        server.stop()
        try:
            if has_checksums:
                server._run("pg_checksums", "--enable", "--no-sync", "--pgdata", str(server._data))
            for number in range(rounds):
                _try(report, server, url, files, truth, number=number, seed=seed)
        finally:
            server.start()
    return report


def _files_of(server: Server, url: str) -> Mapping[str, Path]:
    """Return relation -> its file."""
    server.sql(url, "VACUUM")
    found = (line.rpartition(" ") for line in server.sql(url, _FILES).splitlines())
    return {name: server._data / path for name, _, path in found}


def _try(  # noqa: PLR0913 - one round's all
    report: Report, server: Server, url: str, files: Mapping[str, Path], truth: Truth, *, number: int, seed: int
) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    damage = a_damage(sizes, rng_at(seed, number))
    before = files[damage.file].read_bytes()
    _overwrite(files[damage.file], damage.done_to(before))
    try:
        server.start()
        try:
            outcome, said = asyncio.run(judged(partial(open_store, url, read_only=True), truth))
        finally:
            server.stop()
    except Exception as error:  # whatever is no VodaError is a defect, and one of many rounds
        report.problems.append(f"{damage}: {type(error).__name__}: {error}")
    else:
        report.add(damage, outcome, said)
    finally:
        _overwrite(files[damage.file], before)


def _overwrite(path: Path, contents: bytes) -> None:
    # In place: the file is the server's user's.
    with path.open("r+b") as file:
        file.write(contents)
        file.truncate()
