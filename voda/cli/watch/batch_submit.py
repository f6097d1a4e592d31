"""Submits documents one after the other, and follows their jobs.

Rule: all attempts for one document use one idempotency key, so a lost answer never submits a job twice.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from voda.api.schemas import SubmissionView, WarningView
from voda.cli.http.client import Client, HttpAnswer, decode
from voda.cli.http.retry import for_each, retry_while_away
from voda.cli.manifests import Document, with_working_dir
from voda.cli.options import Output
from voda.cli.render.stdout import note, plain, print_answer
from voda.cli.watch.follow_jobs import follow
from voda.text import counted

_SEEN_BEFORE = 200
_SHARED = re.compile(r"^spec\.(?:mpi|pytorch)ReplicaSpecs\.|(?<=\.)template\.spec\.")


class BatchSubmit:
    """Submits the documents of one command.

    Args:
        documents: in order.
        key: idempotency key of the command; each document gets its own, derived from it.
        is_dry_run: check only.
        output: how each answer is printed.
    """

    def __init__(self, documents: Sequence[Document], *, key: str, is_dry_run: bool, output: Output) -> None:
        self._keyed = [(f"{key}-{number}" if number else key, one) for number, one in enumerate(documents)]
        self._is_dry_run = is_dry_run
        self._output = output
        self._job_ids: list[str] = []

    async def run(self, client: Client) -> bool:
        """Submit all documents; return True."""
        await for_each(self._keyed, lambda keyed: self._submit(client, *keyed))
        return True

    async def follow(self, client: Client) -> bool:
        """Submit, then follow the jobs; return whether all completed."""
        await self.run(client)
        return await follow(client, self._job_ids)

    async def _submit(self, client: Client, key: str, document: Document) -> None:
        if client.target.is_here:
            document = with_working_dir(document, str(Path.cwd()))
        body = msgspec.json.encode(document.manifest)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        query = {"dry_run": "true"} if self._is_dry_run else None

        async def attempt() -> HttpAnswer:
            return await client.ask("POST", "/jobs", params=query, body=body, headers=headers)

        answer = await retry_while_away(attempt)
        done = decode(answer.body, SubmissionView)
        self._job_ids.append(done.job.job_id)
        was_known = answer.status == _SEEN_BEFORE and not done.is_dry_run
        print_answer(answer.body, self._output, name=done.job.job_id, text=lambda: _text(done, was_known=was_known))
        for sentence in _warnings(done.warnings):
            note(f"{done.job.job_id}: {sentence}")


def _warnings(warnings: Sequence[WarningView]) -> Iterator[str]:
    """Yield one sentence per ignored field; fields of the same name and message are merged."""
    fields: dict[tuple[str, str], list[str]] = {}
    for warning in warnings:
        fields.setdefault((warning.field.rpartition(".")[2], warning.message), []).append(warning.field)
    for (_, message), (first, *others) in fields.items():
        yield f"{_SHARED.sub('', first)}{f' (and {len(others)} more)' if others else ''}: {message}"


def _text(done: SubmissionView, *, was_known: bool) -> str:
    job = done.job
    size = f"{job.min_replicas} to {job.max_replicas} replicas" if job.max_replicas > job.min_replicas else ""
    size = size or counted(job.max_replicas, "replica")
    gpus = "" if job.gpus_per_replica == 1 else f" of {job.gpus_per_replica} GPUs"
    what = (
        "would be submitted" if done.is_dry_run else "was already submitted with this key" if was_known else "submitted"
    )
    epochs = f", {job.progress.epochs} epochs" if job.progress.epochs else ""
    return plain(f"{job.job_id} {what}: {job.kind}, {size}{gpus}{epochs}, pool {job.pool}")
