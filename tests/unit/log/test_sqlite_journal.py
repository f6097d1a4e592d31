"""The look at the journal: whatever another process wrote is told, soon and once more, for as long as somebody asks."""

import asyncio
import os
from pathlib import Path

from voda.log.sql.sqlite_journal import LOOK_S, SqliteNotifier

WAIT_S = 60


class Told:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._news.set()

    async def again(self) -> None:
        """Wait until it is told next."""
        self._news.clear()
        async with asyncio.timeout(WAIT_S):
            await self._news.wait()


async def looked(times: int) -> None:
    """Return once a watch of this loop has looked so often: its timer was set before ours each time."""
    for _ in range(times):
        await asyncio.sleep(LOOK_S)


async def test_journal_when_it_appears_grows_or_is_rewritten_is_told(tmp_path: Path) -> None:
    journal, told = tmp_path / "log.db-wal", Told()
    watch = SqliteNotifier(journal)
    watch.listen(told)
    for at_ns, text in enumerate((b"a", b"ab", b"cd"), 1):
        heard = asyncio.ensure_future(told.again())
        await asyncio.sleep(0)
        journal.write_bytes(text)
        os.utime(journal, ns=(at_ns, at_ns))
        await heard
        assert told.count >= at_ns
    watch.close()


async def test_change_that_may_hide_another_is_told_once_more(tmp_path: Path) -> None:
    journal, told = tmp_path / "log.db-wal", Told()
    watch = SqliteNotifier(journal)
    watch.listen(told)
    journal.write_bytes(b"a")
    await told.again()
    await told.again()
    assert told.count >= 2
    watch.close()


async def test_journal_that_rests_is_told_no_more(tmp_path: Path) -> None:
    journal, told = tmp_path / "log.db-wal", Told()
    journal.write_bytes(b"a")
    watch = SqliteNotifier(journal)
    watch.listen(told)
    await looked(20)
    assert told.count == 0
    watch.close()


async def test_change_of_our_own_is_told_only_as_what_may_hide_anothers(tmp_path: Path) -> None:
    journal, told = tmp_path / "log.db-wal", Told()
    watch = SqliteNotifier(journal)
    watch.listen(told)
    journal.write_bytes(b"a")
    watch.skip_own_change()
    await told.again()
    await looked(100)
    assert told.count == 1
    watch.close()


async def test_watch_that_nobody_asks_for_looks_no_more_until_asked(tmp_path: Path) -> None:
    journal, told = tmp_path / "log.db-wal", Told()
    watch = SqliteNotifier(journal)
    watch.listen(told)
    watch.close()
    journal.write_bytes(b"a")
    await looked(20)
    assert told.count == 0
    watch.listen(told)
    journal.write_bytes(b"ab")
    await told.again()
    watch.close()
