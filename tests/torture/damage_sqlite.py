"""Damage to an SQLite log: its file alone, or with the journal that a killed writer left.

Rule: every damage is done to the same sound log, in a folder of its own.
"""

import asyncio
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.torture.damage_judge import Damage, Outcome, Report, Truth, a_damage, judged, write
from tests.torture.powercut_record import scratch
from voda.domain.rng import rng_at
from voda.log.factory import open_store

LOG: Final = "log.db"
_EVENTS: Final = 400
_WEIGHTS: Final = {LOG: 5.0, f"{LOG}-wal": 5.0, f"{LOG}-end": 1.0}


def sound(*, is_closed: bool) -> tuple[dict[str, bytes], Truth]:
    """Return the files of a log, name -> bytes, and what is in it.

    Args:
        is_closed: the journal is folded in; else much of the log is in the journal, as a killed writer leaves it.
    """
    return asyncio.run(_sound(is_closed))


async def _sound(is_closed: bool) -> tuple[dict[str, bytes], Truth]:
    with scratch() as folder:
        path, killed = Path(folder) / LOG, Path(folder) / "killed"
        store = await open_store(path)
        truth = await write(store, _EVENTS)
        killed.mkdir()
        for suffix in ("", "-wal", "-end"):
            shutil.copy(f"{path}{suffix}", killed)
        await store.close()
        kept = path.parent if is_closed else killed
        return {found.name: found.read_bytes() for found in kept.iterdir() if found.is_file()}, truth


def judged_files(files: Mapping[str, bytes], truth: Truth) -> tuple[Outcome, str]:
    """Lay the files of a log down, and judge it."""
    with scratch() as folder:
        for name, contents in files.items():
            (Path(folder) / name).write_bytes(contents)
        return asyncio.run(judged(partial(open_store, Path(folder) / LOG, read_only=True), truth))


def torture(*, rounds: int, seed: int, is_closed: bool) -> Report:
    """Damage the same log in so many ways, one at a time."""
    report = Report()
    files, truth = sound(is_closed=is_closed)
    sizes = {name: len(contents) for name, contents in files.items()}
    for number in range(rounds):
        damage = a_damage(sizes, rng_at(seed, number), weights=_WEIGHTS)
        _try(report, damage, files, truth)
    return report


def _try(report: Report, damage: Damage, files: Mapping[str, bytes], truth: Truth) -> None:
    try:
        outcome, said = judged_files({**files, damage.file: damage.done_to(files[damage.file])}, truth)
    except Exception as error:  # whatever is no VodaError is a defect, and one of many rounds
        report.problems.append(f"{damage}: {type(error).__name__}: {error}")
    else:
        report.add(damage, outcome, said)
