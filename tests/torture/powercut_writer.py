"""Appends to a real SQLite log as a service does, and notes beside it what it tries and what is acknowledged.

Rule: a note is written after the answer it tells of, by the same system call as everything else: in the shim's record
it stands where the answer came. Run as `python -m tests.torture.powercut_writer FOLDER SEED STEPS [SYNCHRONOUS]`.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from tests.builders import a_fact, a_snapshot
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION
from voda.log.factory import open_store
from voda.log.store import DurableStore

LOG = "log.db"
NOTES = "notes"
_STREAMS = ("job.a", "job.b", "decisions.default")
_SNAPSHOT = "live-1"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the notes."""

    opened: bool = False
    """The log was opened for writing."""
    batch: str = ""
    """An append, by name; its events are `<batch>.0`, `<batch>.1` and so on."""
    events: int = 0
    """How many events the batch has, where it is tried."""
    position: int = 0
    """Where its last event lies, once it is acknowledged."""
    snapshot: int = 0
    """Position of a snapshot that is kept."""


class Writer:
    """One process's work: batches alone and together, snapshots, closing and opening again."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self._path = folder / LOG
        self._notes = os.open(folder / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._rng = rng
        self._process = os.getpid()
        self._batches = 0

    async def run(self, steps: int, synchronous: str) -> None:
        """Do so many steps, and leave without closing the log, as a killed process does."""
        store = await self._open(synchronous)
        for _ in range(steps):
            chance = self._rng.random()
            if chance < 0.02:
                await store.close()
                store = await self._open(synchronous)
            elif chance < 0.06:
                await self._snapshot(store)
            elif chance < 0.5:
                await self._append(store)
            else:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._rng.randint(2, 6)):
                        group.create_task(self._append(store))
        os._exit(0)

    async def _open(self, synchronous: str) -> DurableStore:
        store = await open_store(self._path)
        # Another word than FULL shows that the judge finds what such a setting loses.
        await _set_synchronous(store, synchronous)
        self._note(Note(opened=True))
        return store

    async def _append(self, store: DurableStore) -> None:
        self._batches += 1
        batch, events = f"{self._process}.{self._batches}", self._rng.choice([1, 1, 1, 2, 5, 40])
        self._note(Note(batch=batch, events=events))
        facts = [a_fact(f"{batch}.{number}", at=float(self._batches)) for number in range(events)]
        position = await store.append(self._rng.choice(_STREAMS), ANY_VERSION, facts)
        self._note(Note(batch=batch, position=position))

    async def _snapshot(self, store: DurableStore) -> None:
        position, state = await store.position(), self._rng.randbytes(self._rng.choice([100, 20_000, 200_000]))
        if position:
            await store.snapshots.save(a_snapshot(_SNAPSHOT, position, state, heads=await store.heads()))
            self._note(Note(snapshot=position))

    def _note(self, note: Note) -> None:
        os.write(self._notes, msgspec.json.encode(note) + b"\n")


async def _set_synchronous(store: DurableStore, synchronous: str) -> None:
    writer = store.database._writer  # type: ignore[attr-defined]  # the setting is not the user's to choose
    writer._connection.execute(f"PRAGMA synchronous = {synchronous}")


def main(arguments: Sequence[str]) -> None:
    """Write as the command line says."""
    folder, seed, steps, *synchronous = arguments
    writer = Writer(Path(folder), rng_at(int(seed), "writer"))
    asyncio.run(writer.run(int(steps), synchronous[0] if synchronous else "FULL"))


if __name__ == "__main__":
    main(sys.argv[1:])
