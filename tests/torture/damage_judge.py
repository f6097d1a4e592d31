"""Damage to a log's files, one bit or one cut at a time: what a verification and readers make of it.

Rule: damage is found (`voda log verify` says so, in one sentence) or harmless (everything reads as it was written).
See docs/reliability-disks.md.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from tests.builders import a_fact, a_snapshot
from voda.domain.errors import VodaError
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION, Event, Head, Sealed
from voda.log.archive.verify import verify_log
from voda.log.factory import migrate_log, open_store
from voda.log.store import DurableStore

_STREAMS = 7
_SNAPSHOT = "live-1"
_FAR = 1_000_000
_PAGE_BYTES = 4096


class Outcome(StrEnum):
    """What became of one damage."""

    HARMLESS = "harmless"
    """Everything reads as it was written."""
    FOUND = "found"
    """A verification says so, and no reader was given what was not written."""
    MISREAD = "misread"
    """A verification says so, but a reader was told less, or something else, without a word."""
    SILENT = "silent"
    """What is read is not what was written, and nothing tells."""


@dataclass(frozen=True)
class Truth:
    """What was written."""

    events: Sequence[Sealed]
    heads: Mapping[str, Head]
    snapshots: Sequence[tuple[str, int, bytes]]


@dataclass(frozen=True)
class Damage:
    """One damage: which file, where, and the bytes that come of it."""

    file: str
    at: int
    bit: int | None
    """None: the file ends at `at`."""

    def __str__(self) -> str:
        what = "cut" if self.bit is None else f"bit {self.bit} flipped"
        return f"{self.file} {what} at byte {self.at} ({self.at // _PAGE_BYTES} pages in)"

    def done_to(self, contents: bytes) -> bytes:
        """Return the damaged contents."""
        if self.bit is None:
            return contents[: self.at]
        return contents[: self.at] + bytes([contents[self.at] ^ 1 << self.bit]) + contents[self.at + 1 :]


@dataclass
class Report:
    """What was found over all rounds."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    """Outcomes by file: `log.db found`."""
    misreads: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Damages that nothing tells of, and errors that are no sentences."""

    @property
    def rounds(self) -> int:
        """How many damages were judged."""
        return sum(self.outcomes.values())

    def add(self, damage: Damage, outcome: Outcome, said: str) -> None:
        """Count one judged damage."""
        self.outcomes[outcome] += 1
        self.files[f"{damage.file} {outcome}"] += 1
        if outcome is Outcome.MISREAD:
            self.misreads.append(f"{damage}: {said}")
        elif outcome is Outcome.SILENT:
            self.problems.append(f"{damage}: {outcome}: {said}")

    def __str__(self) -> str:
        counted = ", ".join(f"{outcome} {self.outcomes[outcome]}" for outcome in Outcome)
        return f"{self.rounds} damages: {counted}; {len(self.problems)} problems"


def a_damage(sizes_bytes: Mapping[str, int], rng: Random, *, weights: Mapping[str, float] | None = None) -> Damage:
    """Choose one: nearly always a flipped bit, anywhere in any file; now and then a cut."""
    names = sorted(name for name, size in sizes_bytes.items() if size)
    [name] = rng.choices(names, [(weights or {}).get(name, 1.0) for name in names])
    at = rng.randrange(sizes_bytes[name])
    return Damage(name, at, None if rng.random() < 0.1 else rng.randrange(8))


async def write(store: DurableStore, events: int) -> Truth:
    """Fill a log, with snapshots now and then, and return what is in it."""
    for number in range(events):
        facts = [a_fact(f"{number}", at=float(number), actor="x" * (number % 97))]
        await store.append(f"job.{number % _STREAMS}", ANY_VERSION, facts)
        if number % 100 == 50:
            state = rng_at(number).randbytes(3000)
            await store.snapshots.save(a_snapshot(_SNAPSHOT, number + 1, state, heads=await store.heads()))
    snapshots = [(found.name, found.position, found.state) async for found in store.snapshots.all()]
    return Truth(await store.read_sealed(0, _FAR), await store.heads(), snapshots)


async def filled(url: str, events: int) -> Truth:
    """Make a log on a server, and `write` to it."""
    await migrate_log(url)
    store = await open_store(url)
    try:
        return await write(store, events)
    finally:
        await store.close()


async def judged(opened: Callable[[], Awaitable[DurableStore]], truth: Truth) -> tuple[Outcome, str]:
    """Return what a verification and readers make of a damaged log, and what they say.

    Raises:
        Exception: anything but a VodaError is a defect of voda's own.
    """
    try:
        store = await opened()
    except VodaError as error:
        return Outcome.FOUND, _one_sentence(error)
    try:
        try:
            verdict = await verify_log(store)
            problem = verdict.problem
        except VodaError as error:
            problem = _one_sentence(error)
        difference = await _misread(store, truth)
    finally:
        await store.close()
    if problem:
        return (Outcome.MISREAD, difference) if difference else (Outcome.FOUND, _one_sentence(problem))
    return (Outcome.SILENT, difference) if difference else (Outcome.HARMLESS, "")


async def _misread(store: DurableStore, truth: Truth) -> str:
    """Return what some reader is told that was not written; empty where everything is right or refused."""
    for read in (_read_all, _read_streams, _read_snapshot):
        try:
            difference = await read(store, truth)
        except VodaError:
            continue
        if difference:
            return difference
    return ""


async def _read_all(store: DurableStore, truth: Truth) -> str:
    if (position := await store.position()) != len(truth.events):
        return f"the log ends at {position}, expected {len(truth.events)}"
    sealed = await store.read_sealed(0, _FAR)
    events = await store.read(0, _FAR)
    if len(events) != len(truth.events):
        return f"{len(events)} of {len(truth.events)} events are read"
    return "" if list(sealed) == list(truth.events) else "an event is another one"


async def _read_streams(store: DurableStore, truth: Truth) -> str:
    for stream, head in truth.heads.items():
        events = await store.read(0, _FAR, stream=stream)
        if not _is_whole(events, head):
            return f"stream {stream} reads {len(events)} of {head.version} events"
        if (found := await store.head(stream)) != head:
            return f"stream {stream} ends at version {found.version} ({found.hash[:8]}), epoch {found.epoch}"
    return ""


async def _read_snapshot(store: DurableStore, truth: Truth) -> str:
    snapshot = await store.snapshots.latest(_SNAPSHOT)
    if snapshot and (snapshot.name, snapshot.position, snapshot.state) not in truth.snapshots:
        return f"the snapshot of position {snapshot.position} is another one"
    return ""


def _is_whole(events: Sequence[Event], head: Head) -> bool:
    return [event.version for event in events] == list(range(1, head.version + 1))


def _one_sentence(said: object) -> str:
    text = str(said)
    assert text, "an error without a word"
    assert "\n" not in text, f"not one sentence: {text}"
    return text
