"""One torture of one store, from the first start to the verdict.

Rule: whatever was found lies in one folder in the end: journals, a copy of the log, what was done and when, what voda
said, and the verdict.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import Struct

from tests.torture.chaos import Tally
from tests.torture.journal import now
from tests.torture.process import Voda
from tests.torture.programs import kill_jobs, run_voda, voda, voda_up
from tests.torture.scene import Scene
from tests.torture.servers import serving
from voda.domain.rng import rng_at

_CHECK_S = 1_800.0
_LEAST_SHARE = 0.2
"""Of the operations that clients tried: as many must have been acknowledged, or the torture proves nothing."""


class Wanted(Struct, frozen=True, kw_only=True):
    """What a torture shall be like."""

    store: str
    kills: int
    seconds: float | None
    """At most so long, start and end not counted."""
    seed: int
    folder: Path
    """Emptied first."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a torture found."""

    tally: Tally
    figures: Mapping[str, int]
    findings: Mapping[str, Sequence[str]]
    wall_s: float

    @property
    def broken(self) -> Sequence[str]:
        """What should not be, one sentence each."""
        return [f"{claim}: {what}" for claim, found in self.findings.items() for what in found]


async def torture(wanted: Wanted, told: Callable[[Tally], None]) -> Outcome:
    """Torture one store, and return what was found.

    Args:
        wanted: see Wanted.
        told: called as it goes on.

    Raises:
        RuntimeError: it cannot be begun or go on, such as for want of a server's binaries.
    """
    if shutil.which("flock") is None:
        raise RuntimeError("the jobs of a torture lock files with the program flock: install util-linux")
    began, folder = now(), wanted.folder
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("home", "journals", "said"):
        (folder / name).mkdir(parents=True)
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(serving(wanted.store, folder / "home", rng_at(wanted.seed, "links")))
        if wanted.store != "sqlite":
            await asyncio.to_thread(run_voda, "log", "migrate", servers.direct_url)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        made = voda_up(folder, servers.url)
        stack.push_async_callback(_leave_nothing, made, folder / "home")
        scene = Scene(folder, servers, made, session, seed=wanted.seed)
        tally, trouble = await scene.play(kills=wanted.kills, seconds=wanted.seconds, told=told)
        await asyncio.to_thread(run_voda, "log", "copy", servers.direct_url, str(folder / "log"))
        verdict = await asyncio.to_thread(_checked, folder)
    findings = {**verdict["findings"], "voda lives until it is killed": trouble}
    return Outcome(
        tally=tally,
        figures=verdict["figures"],
        findings={**findings, "something happened at all": _idle(tally, verdict["figures"])},
        wall_s=now() - began,
    )


def _idle(tally: Tally, figures: Mapping[str, int]) -> Sequence[str]:
    """Return why the torture proves nothing, if it does not."""
    is_answered = figures["acknowledged"] >= _LEAST_SHARE * figures["operations"] > 0
    if tally.kills and figures["plans"] and is_answered:
        return ()
    answered = f"{figures['acknowledged']} of {figures['operations']} operations acknowledged"
    return [f"{tally.kills} kills, {answered}, {figures['plans']} plans"]


async def _leave_nothing(made: Voda, home: Path) -> None:
    await made.kill()
    await asyncio.to_thread(kill_jobs, home)


def _checked(folder: Path) -> Mapping[str, Any]:
    """Run the checker, a program of its own, and return its verdict."""
    verdict = folder / "verdict.json"
    words = [sys.executable, "-m", "tests.torture.checker", *map(str, sorted((folder / "journals").glob("*.jsonl")))]
    words += ["--log", str(folder / "log"), "--voda", voda(), "--home", str(folder / "home"), "-o", str(verdict)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_CHECK_S, check=False)
    (folder / "verdict.txt").write_text(done.stdout + done.stderr)
    if not verdict.exists():
        raise RuntimeError(f"the checker broke: {done.stderr[-2_000:]}")
    found: Mapping[str, Any] = json.loads(verdict.read_bytes())
    return found
