"""Real training jobs share the slots of this machine; watch them start, shrink and grow.

Starts `voda up` in a folder of its own, submits digits-mpi several times, and follows the log until all have ended:
three jobs on four slots, or with --virtual-clusters two teams of four slots each, one of which borrows from the other.
Rule: it does only what a user can do, with the commands a user would type.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from voda.client import AsyncClient
from voda.domain.reasons.outcomes import Reason
from voda.events.text.reasons import unsized_text

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "digits-mpi"
COLOURS = ("cyan", "magenta", "yellow")
LIMIT_S = 300.0
REMIND_S = 5.0
WIDTH = 100
"""Columns of a line."""


class Submit(NamedTuple):
    """A job, and when it comes."""

    at_s: float
    name: str
    options: tuple[str, ...] = ()


class Scenario(NamedTuple):
    """What the demo shows."""

    title: str
    slots: int
    submits: tuple[Submit, ...]
    virtual_clusters: str = ""
    """As `voda vc apply` takes them; empty: none."""


PLAIN = Scenario(
    "Three jobs of 1 to 4 workers, four slots",
    slots=4,
    submits=(Submit(0.0, "digits-1"), Submit(12.0, "digits-2"), Submit(24.0, "digits-3")),
)
TEAMS = Scenario(
    "Two teams are guaranteed four slots each; vision's job borrows what speech leaves idle, until speech needs it",
    slots=8,
    submits=(
        Submit(0.0, "vision-1", ("--vc", "vision", "--min", "1", "--max", "8")),
        Submit(15.0, "speech-1", ("--vc", "speech", "--min", "4", "--max", "4")),
    ),
    virtual_clusters="virtualClusters:\n  vision: {cells: {node.gpu: 4}}\n  speech: {cells: {node.gpu: 4}}\n",
)

console = Console(highlight=False, soft_wrap=True)


class Story:
    """What the log told so far, and how to show it."""

    def __init__(self, scenario: Scenario = PLAIN) -> None:
        self.scenario = scenario
        self.began_at = self.said_at = time.monotonic()
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
                reasons = msgspec.convert(data.get("reasons", {}), dict[str, Reason])
                self.reasons |= {name: unsized_text(reason) for name, reason in reasons.items()}
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
            line.append("██ " * count, style=self._colour(name))
        line.append("·· " * max(0, self.scenario.slots - sum(count for _, count in held)), style="bright_black")
        line.append(f" {job_id:<9}", style=self._colour(job_id))
        first, *more = wrap(words, WIDTH - line.cell_len)
        console.print(line.append(first))
        for rest in more:
            console.print(f"{'':{line.cell_len - len(first)}}{rest}")
        self.said_at = time.monotonic()

    def remind(self) -> None:
        """Print how far the jobs are, where nothing was said for a while."""
        if time.monotonic() - self.said_at < REMIND_S:
            return
        done = {
            name: self.progress.get(name, {}).get("epochs_done", 0) for name in self.sizes if name not in self.ended
        }
        told = ", ".join(f"{name} {count:g}" for name, count in done.items())
        self.say("", f"epochs done: {told}" if told else "jobs are starting")

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

    def _colour(self, job_id: str) -> str:
        names = [each.name for each in self.scenario.submits]
        return COLOURS[names.index(job_id)] if job_id in names else "white"


def voda(*arguments: str, env: Mapping[str, str], cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the voda command of this environment, and show it as a user would type it."""
    console.print(f"[bold]$ voda {' '.join(arguments)}[/bold]")
    command = [str(Path(sys.executable).with_name("voda")), *arguments]
    return subprocess.run(command, env=dict(env), cwd=cwd, text=True, timeout=120, check=False, **options)


@asynccontextmanager
async def service(home: Path, env: Mapping[str, str], slots: int) -> AsyncIterator[str]:
    """Run `voda up` for the length of the block, and yield its URL."""
    arguments = ["up", "--slots", str(slots), "--port", "0", "--ratelimit", "2", "--halt-on-exit"]
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
        if len(story.ended) == len(story.scenario.submits):
            return


async def remind(story: Story) -> None:
    """Print how far the jobs are whenever there is no other news, until all have ended."""
    while len(story.ended) < len(story.scenario.submits):
        story.remind()
        await asyncio.sleep(1.0)


async def submit(env: Mapping[str, str], story: Story) -> None:
    """Submit the jobs, each at its time."""
    for at_s, name, options in story.scenario.submits:
        await asyncio.sleep(max(0.0, story.began_at + at_s - time.monotonic()))
        arguments = ("submit", "job.yaml", "--name", name, *options)
        done = await asyncio.to_thread(voda, *arguments, env=env, cwd=EXAMPLE, capture_output=True)
        if done.returncode:
            raise SystemExit(f"demo: {done.stderr.strip() or done.stdout.strip()}")


def guarantee(home: Path, scenario: Scenario, env: Mapping[str, str]) -> None:
    """Give the teams their slots."""
    if scenario.virtual_clusters:
        file = home / "virtual-clusters.yaml"
        file.write_text(scenario.virtual_clusters)
        if voda("vc", "apply", os.path.relpath(file, ROOT), env=env).returncode:
            raise SystemExit("demo: the virtual clusters were not applied")


async def run(out: Path, scenario: Scenario) -> Story:
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
    story = Story(scenario)
    async with service(home, env, scenario.slots) as url:
        guarantee(home, scenario, env)
        token = (home / "admin.token").read_text().strip()
        client = AsyncClient(url, token)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            story.began_at = time.monotonic()
            group.create_task(follow(client, story))
            group.create_task(submit(env, story))
            group.create_task(remind(story))
        voda("get", "--all", env=env)
    return story


def conclude(story: Story, out: Path) -> int:
    """Print what came of it, and what to do with the log; return the exit status."""
    table = Table(title="What became of the jobs", title_justify="left")
    for head in ("job", "outcome", "epochs", "accuracy", "workers over time", "resizes"):
        table.add_column(head)
    for _, name, _ in story.scenario.submits:
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
    is_done = all(story.ended.get(each.name) == "completed" for each in story.scenario.submits)
    return 0 if is_done and drawn.returncode == 0 and verified.returncode == 0 else 1


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Real training jobs share the slots of this machine.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for log, jobs and picture")
    parser.add_argument(
        "--virtual-clusters", action="store_true", help="two teams of four slots each, one of which borrows"
    )
    options = parser.parse_args()
    out, scenario = options.out.resolve(), TEAMS if options.virtual_clusters else PLAIN
    console.print(f"{scenario.title}: each slot is a ██, each job a colour.")
    console.print("It takes one to four minutes; the jobs say every few seconds how far they are.\n")
    try:
        story = asyncio.run(run(out, scenario))
    except TimeoutError:
        console.print(
            f"demo: not done within {LIMIT_S:.0f} s; see {out / 'home' / 'up.log'} and {out / 'home' / 'jobs'}"
        )
        return 1
    return conclude(story, Path(os.path.relpath(out)))


if __name__ == "__main__":
    sys.exit(main())
