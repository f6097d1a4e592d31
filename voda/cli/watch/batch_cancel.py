"""Cancels jobs and arrays by their names, and waits for their ends.

Rule: one that cannot be canceled does not keep the others; what had ended before stays as it is, and is told.
"""

from collections.abc import Sequence

from voda.cli.http.client import Client, HttpCall, decode, for_each, resource_path
from voda.cli.http.confirmation import ChangeConfirmation
from voda.cli.render.job_text import exactly, has_ended, state
from voda.cli.render.terminal import note, plain
from voda.cli.watch.lists import fetch_array, fetch_jobs
from voda.cli.watch.refresh import wake_on_change
from voda.domain.errors import NotFound
from voda.text import counted
from voda.wire.jobs import ArrayView, JobView

_EVERY_S = 1.0
_PRUNE = "; `voda prune` deletes the folders of ended jobs"


class BatchCancel:
    """One command's cancellations.

    Args:
        client: of the server.
        reason: for the log; empty = none given.
        is_sure: whether nobody is asked about jobs of other users.
        is_kill: whether their processes are killed at once.
    """

    def __init__(self, client: Client, reason: str, *, is_sure: bool, is_kill: bool = False) -> None:
        self._client = client
        self._query = {**({"reason": reason} if reason else {}), **({"now": "true"} if is_kill else {})}
        self._confirmation = ChangeConfirmation(client, "delete", is_sure=is_sure)
        self._canceled: list[str] = []
        self._has_ended_before = False

    def run(self, names: Sequence[str], *, waits: bool) -> bool:
        """Cancel what has these names, and return whether nothing had ended; with `waits`, once it is gone.

        Raises the last refusal; the others are printed.
        """
        try:
            for_each(names, self._cancel)
        finally:
            if waits and self._canceled:
                self._wait_for_end()
        return not self._has_ended_before

    def _cancel(self, name: str) -> None:
        try:
            job = self._confirmation.job(name)
        except NotFound as error:
            try:
                array = fetch_array(self._client, name)
            except NotFound:
                raise error from None
            self._cancel_array(name, array)
        else:
            self._cancel_job(job)

    def _cancel_job(self, before: JobView) -> None:
        if has_ended(before):
            note(f"{before.job_id} ended ({state(before).lower()}) before: nothing to cancel{_PRUNE}")
            self._has_ended_before = True
            return
        job = decode(self._delete(resource_path("jobs", exactly(before))), JobView)
        print(plain(f"{job.job_id} is {state(job).lower()}" if has_ended(job) else f"{job.job_id} is being canceled"))
        self._canceled.append(exactly(job))

    def _cancel_array(self, named: str, before: ArrayView) -> None:
        """Cancel all live tasks of an array together."""
        from voda.cli.render.arrays import array_name, states

        if before.finished_at is not None:
            note(f"{array_name(before)} ended ({states(before)}) before: nothing to cancel{_PRUNE}")
            self._has_ended_before = True
            return
        exact = f"@{before.array_id}"
        self._confirmation.refuse_unmeant(named, before.user, what=array_name(before), exact=exact)
        found = fetch_jobs(self._client, {"array": exact}, limit=0)
        array = decode(self._delete(resource_path("arrays", exact)), ArrayView)
        live = [exactly(job) for job in found.items if not has_ended(job)]
        print(f"{array_name(array)}: {counted(len(live), 'task')} being canceled")
        self._canceled += live

    def _delete(self, path: str) -> bytes:
        return self._client.ask_repeatedly(HttpCall(method="DELETE", path=path, params=self._query)).body

    def _wait_for_end(self) -> None:
        left = self._canceled
        with wake_on_change(self._client, every_s=_EVERY_S) as wait:
            while True:
                for name in tuple(left):
                    job = decode(self._client.get(resource_path("jobs", name)), JobView)
                    if has_ended(job):
                        left.remove(name)
                        print(f"{job.job_id} is {state(job).lower()}", flush=True)
                if not left:
                    return
                wait()
