"""A power cut under an SQLite log: at any moment, with any part of what was not flushed gone.

Rule: whatever a disk may look like afterwards, voda opens it, finds every acknowledged append and snapshot, no batch
in part and nothing twice, proves the log, and goes on writing. See docs/reliability-disks.md for what this shows.

    python -m tests.torture.powercut --rounds 2000 --seed 1
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.builders import a_fact
from tests.torture.powercut_disk import Disk, Loss, found_on, write_out
from tests.torture.powercut_record import Operation, Unreplayable, built_shim, environment, operations, scratch
from tests.torture.powercut_writer import LOG, NOTES, Note
from voda.domain.errors import VodaError
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION, Event
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store
from voda.log.store import DurableStore

_ROOT = Path(__file__).parents[2]
_WRITER_S = 300
_STEPS = 120
ROUNDS_PER_RECORD = 150
_INDEX = f"{LOG}-shm"


@dataclass
class Told:
    """What the writers had been told when the power went."""

    is_opened: bool = False
    tried: dict[str, int] = field(default_factory=dict)
    """Batch -> how many events it has."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Batch -> position of its last event."""
    snapshot: int = 0


@dataclass
class Report:
    """What was found over all rounds."""

    rounds: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    operations: int = 0


def recorded(folder: Path, *, seed: int, synchronous: str = "FULL") -> tuple[str, Sequence[Operation]]:
    """Let real writers work in a new folder, one after the other, and return its path and all they did to it.

    Raises:
        NoCompiler, Unreplayable: see powercut_record.
    """
    disk, journal = folder / "disk", folder / "journal"
    disk.mkdir()
    variables = {**os.environ, **environment(built_shim(folder), disk, journal)}  # noqa: TID251 - handed on whole
    for number in range(2):
        command = [sys.executable, "-m", "tests.torture.powercut_writer", str(disk), str(seed + number), str(_STEPS)]
        done = subprocess.run(
            [*command, synchronous],
            env=variables,
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=_WRITER_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the writer failed: {done.stderr[-1000:]}")
    root, found = str(disk.resolve()), operations(journal)
    _refuse_incomplete(root, found, disk)
    return root, found


def torture(*, rounds: int, seed: int, synchronous: str = "FULL", drops_flushes: bool = False) -> Report:
    """Cut the power in so many rounds, and judge what is found afterwards.

    Args:
        rounds: states of the disk to look at.
        seed: of the moments and losses; what the writers do depends on the machine's pace too.
        synchronous: SQLite's setting; with another than voda's, FULL, losses are to be found.
        drops_flushes: a drive that lies about flushing; losses are to be found.
    """
    report = Report()
    while report.rounds < rounds:
        count = min(ROUNDS_PER_RECORD, rounds - report.rounds)
        with scratch() as folder:
            root, done = recorded(Path(folder), seed=seed + report.rounds, synchronous=synchronous)
            report.operations += len(done)
            _cut(Disk(root, drops_flushes=drops_flushes), done, report, rounds=count, seed=seed)
    return report


def _cut(disk: Disk, done: Sequence[Operation], report: Report, *, rounds: int, seed: int) -> None:
    chances = rng_at(seed, f"moments {report.rounds}")
    moments = Counter(chances.randint(0, len(done)) for _ in range(rounds))
    told = Told()
    for moment in range(len(done) + 1):
        for _ in range(moments[moment]):
            report.rounds += 1
            rng = rng_at(seed, report.rounds)
            loss = rng.choice(list(Loss))
            tree = disk.after_power_cut(loss, rng)
            # SQLite makes its index anew; whatever is in it must not be believed.
            tree[_INDEX] = rng.randbytes(32_768)
            report.losses[loss] += 1
            if problem := _judged(tree, told):
                report.problems.append(f"round {report.rounds}, {loss} lost after operation {moment}: {problem}")
        if moment < len(done):
            disk.step(done[moment])
            _listen(told, done[moment])


def _judged(tree: Mapping[str, bytes], told: Told) -> str:
    """Return what is wrong with what was found; empty where nothing is."""
    with scratch() as folder:
        write_out({path: contents for path, contents in tree.items() if path != NOTES}, Path(folder))
        path = Path(folder) / LOG
        if not path.exists():
            return "the log is gone though it had been opened" if told.is_opened else ""
        try:
            return asyncio.run(_judged_log(path, told))
        except VodaError as error:
            return f"{type(error).__name__}: {error}"


async def _judged_log(path: Path, told: Told) -> str:
    store = await open_store(path)
    try:
        if not (verdict := await verify_log(store)).is_intact:
            return verdict.problem
        if problem := _compared(await store.read(0, 1_000_000), told):
            return problem
        if told.snapshot and not await store.snapshots.latest("live-1", at_most=told.snapshot):
            return f"the snapshot of position {told.snapshot} is gone"
        return await _gone_on(store)
    finally:
        await store.close()


def _compared(events: Sequence[Event], told: Told) -> str:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.event_id.rpartition(".")[0], []).append(event)
    for batch, position in told.acknowledged.items():
        if batch not in found:
            return f"batch {batch} was acknowledged at position {position} and is gone"
        if (last := found[batch][-1].position) != position:
            return f"batch {batch} was acknowledged at position {position} and is at {last}"
    for batch, kept in found.items():
        if [event.event_id for event in kept] != [f"{batch}.{number}" for number in range(told.tried.get(batch, 0))]:
            return f"batch {batch} is there in part: {len(kept)} events of {told.tried.get(batch, 0)}"
    return ""


async def _gone_on(store: DurableStore) -> str:
    before = await store.position()
    after = await store.append("job.a", ANY_VERSION, [a_fact("after the power cut")])
    if after != before + 1:
        return f"the next append is at position {after}, expected {before + 1}"
    return (await verify_log(store)).problem


def _listen(told: Told, operation: Operation) -> None:
    if not operation.path.endswith(f"/{NOTES}") or not operation.data:
        return
    note = msgspec.json.decode(operation.data, type=Note)
    told.is_opened = told.is_opened or note.opened
    told.snapshot = max(told.snapshot, note.snapshot)
    if note.position:
        told.acknowledged[note.batch] = note.position
    elif note.batch:
        told.tried[note.batch] = note.events


def _refuse_incomplete(root: str, done: Sequence[Operation], folder: Path) -> None:
    disk = Disk(root)
    for operation in done:
        disk.step(operation)
    replayed, found = disk.now(), found_on(folder)
    different = sorted(path for path in {*replayed, *found} - {_INDEX} if replayed.get(path) != found.get(path))
    if different:
        raise Unreplayable(f"{different[0]} is not what the record says: the shim missed something")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; return 1 where something was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.powercut", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1000, help="states of the disk to look at")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synchronous", default="FULL", help="SQLite's setting; another shows what it would lose")
    parser.add_argument("--drops-flushes", action="store_true", help="a drive that lies about flushing")
    options = parser.parse_args(arguments)
    report = torture(
        rounds=options.rounds, seed=options.seed, synchronous=options.synchronous, drops_flushes=options.drops_flushes
    )
    for problem in report.problems[:20]:
        print(problem)  # noqa: T201 - a program for people
    print(  # noqa: T201
        f"{report.rounds} power cuts over {report.operations} operations"
        f" ({', '.join(f'{loss} {count}' for loss, count in sorted(report.losses.items()))}):"
        f" {len(report.problems)} with something lost"
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
