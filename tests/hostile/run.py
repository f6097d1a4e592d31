"""One run: voda as root, the honest user, the hostile one with all attacks at once, a clock that jumps; restarts; the
verdict.

Rule: what was found lies in one folder in the end; nothing that was started stays.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from urllib.error import HTTPError

from msgspec import Struct

from benchmarks.served import Served, command, environment, resident_bytes, start
from tests.accounts import passable_folder
from tests.hostile.attacks import ATTACKS
from tests.hostile.clock import JumpingClock
from tests.hostile.honest import Honest, deeds_of
from tests.hostile.people import HONEST, HOSTILE, Person, Place
from tests.hostile.restarts import restarted
from tests.hostile.verdict import TIMED, Remains, broken, p99
from voda.events.envelope import Event
from voda.log.factory import open_store

_SLOTS: Final = 8
_NICE: Final = 10
"""Of the hostile: what they use of the cores is none of voda's."""
_CALM_S: Final = 6.0
"""Before anybody attacks."""
_STEP_S: Final = 1.0
_CLOCK_EVERY: Final = 15
"""Seconds, on average, between two jumps of the clock."""
_END_S: Final = 90.0
"""For jobs to end once nobody starts others."""
_COMMAND_S: Final = 120.0
_PAGE: Final = 5_000


class Wanted(Struct, frozen=True, kw_only=True):
    """What a run shall be like."""

    seconds: float
    seed: int
    folder: Path
    """For the evidence; emptied first."""
    attacks: Sequence[str] = tuple(ATTACKS)
    within_s: float


class Outcome(Struct, frozen=True, kw_only=True):
    """What a run found."""

    figures: Mapping[str, str]
    broken: Mapping[str, Sequence[str]]


def run(wanted: Wanted, told: Callable[[str], None]) -> Outcome:
    """Let everything happen, and return what was found.

    Raises:
        RuntimeError: voda does not start.
    """
    shutil.rmtree(wanted.folder, ignore_errors=True)
    wanted.folder.mkdir(parents=True)
    with passable_folder() as home:
        clock = JumpingClock(home / "clock")
        served = start(home, "--port", "0", "--slots", str(_SLOTS), "--ratelimit", "0.5", variables=clock.variables)
        try:
            place = Place(
                socket=home / "voda.sock",
                port=int(served.url.rpartition(":")[2]),
                seed=wanted.seed,
                until=time.perf_counter() + _CALM_S + wanted.seconds,
            )
            most_bytes, attacked_at = _all_at_once(wanted, place, served, clock, told)
            failures = _ended(home, served)
            if not failures:
                failures += restarted(home, place, _SLOTS, wanted.folder / "heard")
            failures += _unsound(home)
            events = asyncio.run(_events(home / "voda.db"))
        finally:
            _leave_nothing(home, served)
            shutil.copy(home / "up.log", wanted.folder)
    said = (wanted.folder / "up.log").read_text(errors="replace")
    if "Traceback" in said:
        failures.append(f"voda wrote a traceback: {wanted.folder / 'up.log'}")
    deeds = deeds_of(wanted.folder / "honest.jsonl")
    remains = Remains(
        deeds=[deed for deed in deeds if not 0 < deed.began_at < attacked_at],
        calm=[deed for deed in deeds if 0 < deed.began_at < attacked_at],
        events=events,
        seconds=wanted.seconds,
        most_bytes=most_bytes,
        failures=failures,
        within_s=wanted.within_s,
        has_jobs=not {*wanted.attacks} <= {"explain", "heads", "connect"},
    )
    return Outcome(figures=_figures(remains), broken=broken(remains))


def _all_at_once(
    wanted: Wanted, place: Place, served: Served, clock: JumpingClock, told: Callable[[str], None]
) -> tuple[int, float]:
    """Let all people act until the place closes; return the most memory that voda held, and when attacks began."""
    most_bytes, chance = 0, place.chance("clock")
    with (wanted.folder / "honest.jsonl").open("ab") as journal:
        said = wanted.folder / "said"
        honest = Person(HONEST, said, lambda: Honest(place, os.dup(journal.fileno())).live())
        time.sleep(_CALM_S)
        attacked_at = time.perf_counter()
        hostile = {name: _attacker(place, name, said) for name in wanted.attacks}
        try:
            while place.is_open() and served.process.poll() is None:
                time.sleep(_STEP_S)
                with suppress(OSError):
                    most_bytes = max(most_bytes, resident_bytes(served.pid))
                _perhaps_jump(clock, chance, told)
                # A job of the same user may kill all its processes.
                for name in [name for name, person in hostile.items() if person.has_ended()]:
                    hostile[name].wait()
                    hostile[name] = _attacker(place, name, said)
        finally:
            for person in hostile.values():
                person.end()
                person.wait()
            # The honest one ends what it is at.
            status = honest.wait()
    if status:
        raise RuntimeError(f"the honest user ended with {status}: {said.read_text()[-2_000:]}")
    return most_bytes, attacked_at


def _attacker(place: Place, name: str, said: Path) -> Person:
    return Person(HOSTILE, said, partial(ATTACKS[name], place), nice=_NICE)


def _perhaps_jump(clock: JumpingClock, chance: Random, told: Callable[[str], None]) -> None:
    if chance.random() < _STEP_S / _CLOCK_EVERY:
        told(f"the clock is {clock.jump(chance):+g} s ahead")


def _ended(home: Path, served: Served) -> list[str]:
    """Wait for the honest user's jobs, end all others, and return what did not go well, one sentence each."""
    failures: list[str] = []
    if served.process.poll() is not None:
        return [f"voda ended with {served.process.returncode}"]
    hostile = [job["job_id"] for job in _live(served, HOSTILE)]
    for job_id in hostile:
        served.ask("DELETE", f"/api/v1/jobs/@{job_id}?now=true")
    deadline = time.perf_counter() + _END_S
    while (live := _live(served)) and time.perf_counter() < deadline:
        time.sleep(0.5)
    failures += [f"job {job['job_id']} of {job['user']} is {job['phase']} after {_END_S:g} s" for job in live]
    failures += _gone(served)
    served.stop()
    return failures


def _unsound(home: Path) -> Iterator[str]:
    for words in (("log", "verify", str(home / "voda.db")), ("replay", str(home / "voda.db"), "--verify")):
        done = subprocess.run(
            command(*words), env=environment(home), capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
        if done.returncode:
            yield f"voda {' '.join(words)}: {(done.stdout + done.stderr)[-500:]}"


def _gone(served: Served) -> Iterator[str]:
    """Yield whose output went, whatever the clock showed meanwhile."""
    for job in served.get(f"/api/v1/jobs?user={HONEST}&limit=500")["items"]:
        try:
            served.get(f"/api/v1/jobs/@{job['job_id']}/logs")
        except HTTPError as error:
            yield f"the output of job {job['job_id']} cannot be read: {error}"


def _live(served: Served, user: str = "") -> list[dict[str, str]]:
    found: list[dict[str, str]] = served.get("/api/v1/jobs?phase=live&limit=500")["items"]
    return [job for job in found if user in ("", job["user"])]


async def _events(log: Path) -> list[Event]:
    store = await open_store(str(log), read_only=True)
    try:
        events: list[Event] = []
        while page := await store.read(len(events), _PAGE):
            events += page
        return events
    finally:
        await store.close()


def _leave_nothing(home: Path, served: Served) -> None:
    """End voda, and whatever its jobs left."""
    with suppress(OSError, subprocess.TimeoutExpired):
        served.kill()
    marks = (f"={home}/".encode(), f"={home}\0".encode())
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(mark in (process / "environ").read_bytes() for mark in marks):
                os.kill(int(process.name), signal.SIGKILL)


def _figures(remains: Remains) -> Mapping[str, str]:
    jobs = sum(deed.what == "submitted" for deed in remains.deeds)
    return {
        "events in the log": f"{len(remains.events):,}",
        "requests of the honest user": f"{len(remains.deeds):,}",
        "its jobs": f"{jobs:,}",
        **{f"{what}, p99": f"{p99(remains.deeds, what):.3f} s" for what in TIMED},
        "most memory of voda": f"{remains.most_bytes / 1e6:,.0f} MB",
    }
