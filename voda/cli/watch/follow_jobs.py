"""Follows jobs until they have ended: a live line each on a terminal, a line for each change elsewhere.

Rule: whoever stops following stops nothing else.
"""

import asyncio
from collections.abc import Sequence

from rich.console import Group
from rich.live import Live
from rich.text import Text

from voda.api.schemas.jobs import JobView
from voda.cli.http.client import Client, NoAnswer, decoded, path
from voda.cli.render.job_text import has_ended, state, summary
from voda.cli.render.stdout import console, plain, say
from voda.cli.render.times import clock, now
from voda.cli.watch.changes import woken
from voda.domain.errors import StoreUnavailable
from voda.domain.job import Phase

_EVERY_S = 5.0
_STEPS = 10
"""Lines of progress that a job gets where nobody watches a terminal."""


async def follow(client: Client, job_ids: Sequence[str]) -> bool:
    """Show the jobs until all have ended; return whether all completed."""
    shown = Follower()
    try:
        with shown.live:
            return await _followed(client, job_ids, shown)
    except asyncio.CancelledError:
        shown.tell(f"no longer followed; what goes on goes on: voda get {' '.join(job_ids)}")
        raise


async def _followed(client: Client, job_ids: Sequence[str], shown: "Follower") -> bool:
    params = {"job": job_ids[0]} if len(job_ids) == 1 else None
    async with woken(client, every_s=_EVERY_S, params=params, lost=shown.tell) as wait:
        while True:
            try:
                jobs = [decoded(await client.get(path("jobs", job_id)), JobView) for job_id in job_ids]
            except (NoAnswer, StoreUnavailable) as error:
                shown.tell(str(error))
            else:
                shown.show(jobs)
                if all(map(has_ended, jobs)):
                    return all(job.phase is Phase.COMPLETED for job in jobs)
            await wait()


class Follower:
    """Where followed jobs appear."""

    def __init__(self) -> None:
        self._console = console()
        self.live = Live(console=self._console, auto_refresh=False, transient=True)
        self._marks: dict[str, object] = {}

    def show(self, jobs: Sequence[JobView]) -> None:
        """Print what changed, and draw a line for every job that goes on."""
        at = now()
        for job in jobs:
            if self._marks.get(job.job_id) != (mark := self._mark(job)):
                self._marks[job.job_id] = mark
                self._print(f"{clock(at, at)} {summary(job, at)}")
        if self._console.is_terminal:
            lines = [Text(plain(summary(job, at)), no_wrap=True) for job in jobs if not has_ended(job)]
            self.live.update(Group(*lines), refresh=True)

    def tell(self, sentence: str) -> None:
        """Tell the user something beside the jobs."""
        if self._console.is_terminal:
            self._print(f"voda: {sentence}")
        else:
            say(sentence)

    def _print(self, line: str) -> None:
        self._console.print(plain(line), soft_wrap=True)

    def _mark(self, job: JobView) -> object:
        """Return what a line is printed for when it changes."""
        mark = (state(job), job.replicas)
        if self._console.is_terminal or not job.progress.epochs:
            return mark
        return *mark, min(_STEPS, int(_STEPS * job.progress.epochs_done / job.progress.epochs))
