"""Submits the documents of one command: the server checks all of them before the first one is submitted.

Rule: all attempts for one document use one idempotency key, so a lost answer never submits a job twice.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from voda.cli.http.client import Client, HttpAnswer, HttpCall, decode
from voda.cli.manifests import (
    Document,
    ReadManifests,
    refuse_second_name,
    with_working_dir,
    without_dependencies_on,
)
from voda.cli.options import Output
from voda.cli.render.job_text import exactly, gpus_text
from voda.cli.render.terminal import note, plain, print_answer
from voda.client.documents import clear_old_code
from voda.clock import SystemClock
from voda.domain.errors import AlreadyExists, InvalidInput, PermanentError, VodaError
from voda.text import counted
from voda.wire.base import WarningView
from voda.wire.jobs import JobView, SubmissionView

_SEEN_BEFORE = 200
_DEFAULT_POOL = "default"
_SHARED = re.compile(r"^spec\.(?:mpi|pytorch)ReplicaSpecs\.|(?<=\.)template\.spec\.")


class BatchSubmit:
    """Submits the documents of one command, or one that was made of a program; each gets its own idempotency key,
    derived from `key`.
    """

    def __init__(self, read: ReadManifests, *, key: str, is_dry_run: bool, output: Output, is_program: bool) -> None:
        self._keyed = [(f"{key}-{number}" if number else key, one) for number, one in enumerate(read.documents)]
        self._refused = read.refused
        self._is_dry_run = is_dry_run
        self._output = output
        self._is_program = is_program
        self._jobs: list[str] = []

    def run(self, client: Client) -> bool:
        """Submit all documents, or none where one is refused; return True.

        Raises:
            PermanentError: of the refusals the last; the others are printed.
        """
        if self._is_dry_run or len(self._keyed) + len(self._refused) > 1:
            self._check(client)
        elif self._refused:
            raise self._refused[0]
        if not self._is_dry_run:
            self._submit_all(client)
        return True

    def follow(self, client: Client) -> bool:
        """Submit, then follow the jobs; return whether all completed."""
        from voda.cli.watch.follow_jobs import follow

        self.run(client)
        return follow(client, self._jobs)

    def print_output(self, client: Client) -> bool:
        """Submit, then print what the job prints; end with the exit code of its program where it did not complete."""
        from voda.cli.watch.job_end import exit_code_of

        self.run(client)
        if code := exit_code_of(client, self._jobs[0]):
            raise click.exceptions.Exit(code)
        return True

    def _check(self, client: Client) -> None:
        """Let the server check all documents; print what it says where that is all that is wanted."""
        refused = [*self._refused]
        for number, (key, document) in enumerate(self._keyed):
            before = [one for _, one in self._keyed[:number]]
            try:
                refuse_second_name(document, before)
                answer = _send(client, key, without_dependencies_on(document, before), is_dry_run=True)
            except PermanentError as error:
                refused.append(error)
            else:
                if self._is_dry_run:
                    self._print(answer)
        if refused:
            for refusal in refused[:-1]:
                note(str(refusal))
            if not self._is_dry_run:
                note(f"nothing is submitted: {len(refused)} of {len(self._refused) + len(self._keyed)} are refused")
            raise refused[-1]

    def _submit_all(self, client: Client) -> None:
        for number, (key, document) in enumerate(self._keyed):
            try:
                answer = _send(client, key, document, is_dry_run=False)
            except VodaError:
                if number:
                    # What was checked has changed meanwhile.
                    left = ", ".join(one.source for _, one in self._keyed[number:])
                    note(f"{counted(number, 'manifest')} submitted before it; not submitted: {left}")
                raise
            done = decode(answer.body, SubmissionView)
            self._jobs.append(_array_name(done) or exactly(done.job))
            self._print(answer)
        if self._is_program:
            clear_old_code(client)

    def _print(self, answer: HttpAnswer) -> None:
        done = decode(answer.body, SubmissionView)
        named = _array_name(done) or done.job.job_id
        was_known = answer.status == _SEEN_BEFORE and not done.is_dry_run
        print_answer(
            answer.body, self._output, [named], lambda: _text(done, was_known=was_known, is_program=self._is_program)
        )
        for sentence in _warnings(done.warnings):
            note(f"{named}: {sentence}")


def check(client: Client, document: Document) -> None:
    """Let the server check a document; raises what it would refuse it with."""
    _send(client, SystemClock().new_id(), document, is_dry_run=True)


def _send(client: Client, key: str, document: Document, *, is_dry_run: bool) -> HttpAnswer:
    """Return the answer to one document; an error names the document."""
    if client.target.is_here:
        document = with_working_dir(document, str(Path.cwd()))
    body = msgspec.json.encode(document.manifest)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    query = {"dry_run": "true"} if is_dry_run else None
    call = HttpCall(method="POST", path="/jobs", params=query, body=body, headers=headers)
    try:
        return client.ask_repeatedly(call)
    except (InvalidInput, AlreadyExists) as error:
        raise document.explain(error) from error


def _array_name(done: SubmissionView) -> str:
    """Return the name of the array that was submitted; empty for a single job."""
    return done.job.array.name if done.job.array is not None and done.tasks > 1 else ""


def _warnings(warnings: Sequence[WarningView]) -> Iterator[str]:
    """Yield one sentence per ignored field; fields of the same name and message are merged."""
    fields: dict[tuple[str, str], list[str]] = {}
    for warning in warnings:
        fields.setdefault((warning.field.rpartition(".")[2], warning.message), []).append(warning.field)
    for (_, message), paths in fields.items():
        yield f"{', '.join(_SHARED.sub('', path) for path in paths)}: {message}"


def _text(done: SubmissionView, *, was_known: bool, is_program: bool) -> str:
    job = done.job
    noun = "worker" if is_program else "replica"
    sizes = job.sizes or f"{job.min_replicas} to {job.max_replicas}"
    size = f"{sizes} {noun}s" if job.max_replicas > job.min_replicas else ""
    size = size or counted(job.max_replicas, noun)
    if not job.is_restartable and job.max_replicas > job.min_replicas:
        size = f"{size} (not restartable: it begins with {job.requested_replicas}, and keeps that)"
    gpus = gpus_text(job)
    # Neither is a word of somebody who wrote no manifest.
    kind = "" if is_program else f"{job.kind}, "
    pool = "" if is_program and job.pool == _DEFAULT_POOL else f", pool {job.pool}"
    what = (
        "would be submitted" if done.is_dry_run else "was already submitted with this key" if was_known else "submitted"
    )
    epochs = f", {job.progress.epochs} epochs" if job.progress.epochs else ""
    after = f", after {_after(job)}" if job.after else ""
    about = f"{kind}{size}{gpus}{epochs}{pool}{after}"
    if job.array is None or done.tasks == 1:
        return plain(f"{job.job_id} {what}: {about}")
    bound = f", at most {job.array.at_once} at once" if job.array.at_once else ""
    return plain(f"{job.array.name}[{job.array.indices}] {what}: {done.tasks} tasks{bound}, each {about}")


def _after(job: JobView) -> str:
    from voda.cli.render.arrays import after_text

    return after_text(job.after)
