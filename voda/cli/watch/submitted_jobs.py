"""Submits documents one after the other, and follows their jobs until they end.

Rules: all attempts for one document use one idempotency key, so a lost answer never submits a job twice; interrupting
the following does not affect the jobs.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Group
from rich.live import Live
from rich.text import Text

from voda.api.schemas import JobView, SubmissionView, WarningView
from voda.cli.http.client import Client, HttpAnswer, ServerUnreachable, decode
from voda.cli.http.retry import for_each, retry_while_away
from voda.cli.manifests import Document, with_working_dir
from voda.cli.options import Output
from voda.cli.render.arrays import after_text
from voda.cli.render.job_text import exactly, has_ended, state, summary
from voda.cli.render.terminal import console, note, now, plain, print_answer
from voda.cli.watch.lists import fetch_named_jobs
from voda.cli.watch.refresh import wake_on_change
from voda.domain.errors import InvalidInput, StoreUnavailable
from voda.domain.job import Phase
from voda.text import clock, counted

_SEEN_BEFORE = 200
_EVERY_S = 5.0
_STEPS = 10
"""Progress lines per job when the output is not a terminal."""
_SHARED = re.compile(r"^spec\.(?:mpi|pytorch)ReplicaSpecs\.|(?<=\.)template\.spec\.")


class BatchSubmit:
    """Submits the documents of one command; each gets its own idempotency key, derived from `key`."""

    def __init__(self, documents: Sequence[Document], *, key: str, is_dry_run: bool, output: Output) -> None:
        self._keyed = [(f"{key}-{number}" if number else key, one) for number, one in enumerate(documents)]
        self._is_dry_run = is_dry_run
        self._output = output
        self._jobs: list[str] = []

    async def run(self, client: Client) -> bool:
        """Submit all documents; return True."""
        await for_each(self._keyed, lambda keyed: self._submit(client, *keyed))
        return True

    async def follow(self, client: Client) -> bool:
        """Submit, then follow the jobs; return whether all completed."""
        await self.run(client)
        return await follow(client, self._jobs)

    async def _submit(self, client: Client, key: str, document: Document) -> None:
        if client.target.is_here:
            document = with_working_dir(document, str(Path.cwd()))
        body = msgspec.json.encode(document.manifest)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        query = {"dry_run": "true"} if self._is_dry_run else None

        async def attempt() -> HttpAnswer:
            return await client.ask("POST", "/jobs", params=query, body=body, headers=headers)

        try:
            answer = await retry_while_away(attempt)
        except InvalidInput as error:
            raise document.explain(error) from error
        done = decode(answer.body, SubmissionView)
        named = done.job.array.name if done.job.array is not None and done.tasks > 1 else ""
        self._jobs.append(named or exactly(done.job))
        was_known = answer.status == _SEEN_BEFORE and not done.is_dry_run
        print_answer(answer.body, self._output, [named or done.job.job_id], lambda: _text(done, was_known=was_known))
        for sentence in _warnings(done.warnings):
            note(f"{named or done.job.job_id}: {sentence}")


def _warnings(warnings: Sequence[WarningView]) -> Iterator[str]:
    """Yield one sentence per ignored field; fields of the same name and message are merged."""
    fields: dict[tuple[str, str], list[str]] = {}
    for warning in warnings:
        fields.setdefault((warning.field.rpartition(".")[2], warning.message), []).append(warning.field)
    for (_, message), paths in fields.items():
        yield f"{', '.join(_SHARED.sub('', path) for path in paths)}: {message}"


def _text(done: SubmissionView, *, was_known: bool) -> str:
    job = done.job
    size = f"{job.min_replicas} to {job.max_replicas} replicas" if job.max_replicas > job.min_replicas else ""
    size = size or counted(job.max_replicas, "replica")
    gpus = "" if job.gpus_per_replica == 1 else f" of {job.gpus_per_replica} GPUs"
    what = (
        "would be submitted" if done.is_dry_run else "was already submitted with this key" if was_known else "submitted"
    )
    epochs = f", {job.progress.epochs} epochs" if job.progress.epochs else ""
    after = f", after {after_text(job.after)}" if job.after else ""
    about = f"{job.kind}, {size}{gpus}{epochs}, pool {job.pool}{after}"
    if job.array is None or done.tasks == 1:
        return plain(f"{job.job_id} {what}: {about}")
    bound = f", at most {job.array.at_once} at once" if job.array.at_once else ""
    return plain(f"{job.array.name}[{job.array.indices}] {what}: {done.tasks} tasks{bound}, each {about}")


async def follow(client: Client, jobs: Sequence[str]) -> bool:
    """Show the jobs until all have ended, and return whether all completed."""
    shown = FollowedJobs()
    try:
        with shown.live:
            return await _follow_until_ended(client, jobs, shown)
    except asyncio.CancelledError:
        shown.notify(f"stopped following; the jobs go on: voda get {' '.join(job.removeprefix('@') for job in jobs)}")
        raise


async def _follow_until_ended(client: Client, names: Sequence[str], shown: "FollowedJobs") -> bool:
    params = {"job": names[0]} if len(names) == 1 and names[0].startswith("@") else None
    async with wake_on_change(client, every_s=_EVERY_S, params=params, lost=shown.notify) as wait:
        while True:
            try:
                jobs = (await fetch_named_jobs(client, names)).items
            except (ServerUnreachable, StoreUnavailable) as error:
                shown.notify(str(error))
            else:
                shown.show(jobs)
                if all(map(has_ended, jobs)):
                    return all(job.phase is Phase.COMPLETED for job in jobs)
            await wait()


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
        mark = (state(job), job.replicas)
        if self._console.is_terminal or not job.progress.epochs:
            return mark
        return *mark, min(_STEPS, int(_STEPS * job.progress.epochs_done / job.progress.epochs))
