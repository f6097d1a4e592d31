"""Three real training jobs share four slots of this machine; watch them start, shrink and grow.

Starts `voda up` in a folder of its own, submits digits-mpi three times, and follows the log until all have ended.
Rule: it does only what a user can do, with the commands a user would type.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from voda.client import AsyncClient

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "digits-mpi"
SLOTS = 4
COLOURS = ("cyan", "magenta", "yellow")
SUBMITS = ((0.0, "digits-1"), (12.0, "digits-2"), (24.0, "digits-3"))
"""Seconds after the start, name."""
LIMIT_S = 170.0
_SIZE = re.compile(r"^(?:starts on \d+, |(?:grown|shrunk) \d+ -> \d+: )")
"""What of a reason says again how the size changed."""

console = Console(highlight=False, soft_wrap=True)


class Story:
    """What the log told so far, and how to show it."""

    def __init__(self) -> None:
        self.began_at = time.monotonic()
        self.workers: dict[str, set[int]] = {}
        self.sizes: dict[str, list[int]] = {}
        self.progress: dict[str, Mapping[str, Any]] = {}
        self.reasons: dict[str, str] = {}
        self.ended: dict[str, str] = {}

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """Fold one event, and print it where it is news."""
        job_id = data.get("job_id", "")
        match kind:
            case "plan.adopted":
                self.reasons |= {name: _SIZE.sub("", reason) for name, reason in data.get("reasons", {}).items()}
            case "worker.started":
                self.workers.setdefault(job_id, set()).update(map(int, data["workers"]))
                self._resized(job_id)
            case "worker.exited":
                self.workers.setdefault(job_id, set()).difference_update(data["workers"])
                self._resized(job_id)
            case "job.progressed":
                self.progress[job_id] = data
            case "job.completed" | "job.failed" | "job.canceled":
                self.ended[job_id] = kind.removeprefix("job.")
                self.say(job_id, self.ended[job_id] + (f": {data['reason']}" if "reason" in data else ""))

    def say(self, job_id: str, words: str) -> None:
        """Print one line: when, who has the slots, what happened."""
        held = [(name, len(indices)) for name, indices in sorted(self.workers.items()) if indices]
        line = Text(f"{time.monotonic() - self.began_at:5.0f} s  ")
        for name, count in held:
            line.append("██ " * count, style=_colour(name))
        line.append("·· " * max(0, SLOTS - sum(count for _, count in held)), style="bright_black")
        line.append(f" {job_id:<9}", style=_colour(job_id)).append(words)
        console.print(line)

    def _resized(self, job_id: str) -> None:
        sizes, size = self.sizes.setdefault(job_id, [0]), len(self.workers[job_id])
        if size == sizes[-1] or job_id in self.ended:
            return
        before = sizes[-1]
        sizes.append(size)
        if size == 0:
            self.say(job_id, f"halts ({before} → 0): {self.reasons.get(job_id, '')}")
            return
        word = "starts" if before == 0 else "grows" if size > before else "shrinks"
        self.say(job_id, f"{word} {before} → {size}: {self.reasons.get(job_id, '')}{self._done(job_id)}")

    def _done(self, job_id: str) -> str:
        told = self.progress.get(job_id)
        if told is None:
            return ""
        return f" [epoch {told['epochs_done']:g}, accuracy {told['metrics'].get('accuracy', 0):.1%}]"


def _colour(job_id: str) -> str:
    names = [name for _, name in SUBMITS]
    return COLOURS[names.index(job_id)] if job_id in names else "white"


def voda(*arguments: str, env: Mapping[str, str], cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the voda command of this environment, and show it as a user would type it."""
    console.print(f"[bold]$ voda {' '.join(arguments)}[/bold]")
    command = [str(Path(sys.executable).with_name("voda")), *arguments]
    return subprocess.run(command, env=dict(env), cwd=cwd, text=True, timeout=120, check=False, **options)


@asynccontextmanager
async def service(home: Path, env: Mapping[str, str]) -> AsyncIterator[str]:
    """Run `voda up` for the length of the block, and yield its URL."""
    arguments = ["up", "--slots", str(SLOTS), "--port", "0", "--ratelimit", "2", "--halt-on-exit"]
    console.print(f"[bold]$ voda {' '.join(arguments)} &[/bold]")
    command = [str(Path(sys.executable).with_name("voda")), *arguments]
    with (home / "up.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, env=dict(env), stdout=log, stderr=log, cwd=ROOT)
    try:
        yield await _url(home, process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()


async def _url(home: Path, process: asyncio.subprocess.Process) -> str:
    """Wait until the server says where it is."""
    for _ in range(300):
        if (home / "server.json").exists():
            return str(json.loads((home / "server.json").read_text())["url"])
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    raise SystemExit(f"demo: voda up did not start; it said:\n{(home / 'up.log').read_text()}")


async def follow(client: AsyncClient, story: Story) -> None:
    """Take the log's events as they come, until all jobs have ended."""
    async for event in client.events(after=0):
        story.take(event.type, event.data)
        if len(story.ended) == len(SUBMITS):
            return


async def submit(env: Mapping[str, str], story: Story) -> None:
    """Submit the jobs, each at its time."""
    for at_s, name in SUBMITS:
        await asyncio.sleep(max(0.0, story.began_at + at_s - time.monotonic()))
        arguments = ("submit", "job.yaml", "--name", name)
        done = await asyncio.to_thread(voda, *arguments, env=env, cwd=EXAMPLE, capture_output=True)
        if done.returncode:
            raise SystemExit(f"demo: {done.stderr.strip() or done.stdout.strip()}")


async def run(out: Path) -> Story:
    """Run the jobs to their ends and return what happened."""
    home = out / "home"
    if home.exists() and not (home / "lock").exists():
        raise SystemExit(f"demo: {home} is there and was not made by an earlier demo; choose another --out")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    binaries = str(Path(sys.executable).parent)
    env = {**os.environ, "VODA_HOME": str(home), "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"}
    for variable in ("VODA_SERVER", "VODA_TOKEN"):
        env.pop(variable, None)
    story = Story()
    async with service(home, env) as url:
        token = (home / "admin.token").read_text().strip()
        client = AsyncClient(url, token)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            story.began_at = time.monotonic()
            group.create_task(follow(client, story))
            group.create_task(submit(env, story))
        voda("get", "--all", env=env)
    return story


def conclude(story: Story, out: Path) -> int:
    """Print what came of it, and what to do with the log; return the exit status."""
    table = Table(title="What became of the jobs", title_justify="left")
    for head in ("job", "outcome", "epochs", "accuracy", "workers over time", "resizes"):
        table.add_column(head)
    for _, name in SUBMITS:
        told, sizes = story.progress.get(name, {}), story.sizes.get(name, [0])[1:]
        accuracy = f"{told.get('metrics', {}).get('accuracy', 0.0):.1%}"
        resizes = max(0, len(sizes) - 1)
        epochs = f"{told.get('epochs_done', 0):g}"
        table.add_row(name, story.ended.get(name, "?"), epochs, accuracy, " → ".join(map(str, sizes)), str(resizes))
    console.print(table)
    log, page = out / "home" / "voda.db", out / "timeline.html"
    env = dict(os.environ)
    drawn = voda("timeline", str(log), "--out", str(page), env=env)
    verified = voda("replay", str(log), "--verify", env=env)
    is_done = all(outcome == "completed" for outcome in story.ended.values()) and len(story.ended) == len(SUBMITS)
    return 0 if is_done and drawn.returncode == 0 and verified.returncode == 0 else 1


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Three real training jobs share four slots of this machine.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for log, jobs and picture")
    out = parser.parse_args().out.resolve()
    console.print("Three jobs of 1 to 4 workers, four slots: each slot is a ██, each job a colour.\n")
    try:
        story = asyncio.run(run(out))
    except TimeoutError:
        console.print(
            f"demo: not done within {LIMIT_S:.0f} s; see {out / 'home' / 'up.log'} and {out / 'home' / 'jobs'}"
        )
        return 1
    return conclude(story, Path(os.path.relpath(out)))


if __name__ == "__main__":
    sys.exit(main())
