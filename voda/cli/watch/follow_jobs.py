"""Follows jobs until they end: a line whenever one changes, and on a terminal a live one per job.

Rule: interrupting the following does not affect the jobs.
"""

from collections.abc import Sequence

from rich.console import Group
from rich.live import Live
from rich.text import Text

from voda.cli.http.client import Client, ServerUnreachable
from voda.cli.render.job_text import has_ended, state, summary
from voda.cli.render.terminal import console, note, now, plain
from voda.cli.watch.lists import fetch_named_jobs
from voda.cli.watch.refresh import wake_on_change
from voda.domain.errors import StoreUnavailable
from voda.domain.job import Phase
from voda.text import clock
from voda.wire.jobs import JobView

_EVERY_S = 5.0
_STEPS = 10
"""Progress lines per job when the output is not a terminal."""


def follow(client: Client, jobs: Sequence[str]) -> bool:
    """Show the jobs until all have ended, and return whether all completed."""
    shown = FollowedJobs()
    try:
        with shown.live:
            return _follow_until_ended(client, jobs, shown)
    except KeyboardInterrupt:
        shown.notify(f"stopped following; the jobs go on: voda get {' '.join(job.removeprefix('@') for job in jobs)}")
        raise


def _follow_until_ended(client: Client, names: Sequence[str], shown: "FollowedJobs") -> bool:
    params = {"job": names[0]} if len(names) == 1 and names[0].startswith("@") else None
    with wake_on_change(client, every_s=_EVERY_S, params=params, lost=shown.notify) as wait:
        while True:
            try:
                jobs = (fetch_named_jobs(client, names)).items
            except (ServerUnreachable, StoreUnavailable) as error:
                shown.notify(str(error))
            else:
                shown.show(jobs)
                if all(map(has_ended, jobs)):
                    return all(job.phase is Phase.COMPLETED for job in jobs)
            wait()


class FollowedJobs:
    def __init__(self) -> None:
        self._console = console()
        self.live = Live(console=self._console, auto_refresh=False, transient=True)
        self._marks: dict[str, object] = {}

    def show(self, jobs: Sequence[JobView]) -> None:
        """Print what changed, and draw a line for every live job."""
        at = now()
        for job in jobs:
            if self._marks.get(job.job_id) != (mark := self._mark(job)):
                self._marks[job.job_id] = mark
                self._print(f"{clock(at, at)} {summary(job, at)}")
        if self._console.is_terminal:
            lines = [Text(plain(summary(job, at)), no_wrap=True) for job in jobs if not has_ended(job)]
            self.live.update(Group(*lines), refresh=True)

    def notify(self, sentence: str) -> None:
        if self._console.is_terminal:
            self._print(f"voda: {sentence}")
        else:
            note(sentence)

    def _print(self, line: str) -> None:
        self._console.print(plain(line), soft_wrap=True)

    def _mark(self, job: JobView) -> object:
        """Return the part of a job whose change prints a line."""
        mark = (state(job, now()), job.replicas, job.program_failures)
        if self._console.is_terminal or not job.progress.epochs:
            return mark
        return *mark, min(_STEPS, int(_STEPS * job.progress.epochs_done / job.progress.epochs))
