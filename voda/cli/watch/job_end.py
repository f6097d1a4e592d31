"""Follows one job as if it ran in the terminal: prints what it prints, and ends with the exit code of its program."""

from typing import Final

from voda.cli.http.client import Client, decode, resource_path
from voda.cli.http.remote_log import RemoteLog, known_event
from voda.cli.render.job_text import has_ended, summary
from voda.cli.render.terminal import note, now, plain
from voda.cli.watch.job_output import OutputChoice, print_output
from voda.cli.watch.refresh import wake_on_change
from voda.domain.job import Phase
from voda.events.types import WorkerExited
from voda.wire.jobs import JobView

_OTHERWISE: Final = 1
"""Of a job that failed without an exit code, as by a signal or its time limit, or was canceled."""
_EVERY_S: Final = 5.0


def exit_code_of(client: Client, named: str) -> int:
    """Print the output of a job until it has ended, and return the exit code of its program.

    Args:
        client: asks the server.
        named: the job, by its id: @ID.
    """
    try:
        print_output(client, named, OutputChoice(follow=True))
        job = _ended(client, named)
    except KeyboardInterrupt:
        note(f"stopped following; the job goes on: voda logs -f {named}")
        raise
    if job.phase is Phase.COMPLETED:
        return 0
    note(plain(summary(job, now()) + (f": {job.message}" if job.replicas and job.message else "")))
    return _last_exit_code(client, named) or _OTHERWISE


def _ended(client: Client, named: str) -> JobView:
    with wake_on_change(client, every_s=_EVERY_S, params={"job": named}) as wait:
        while not has_ended(job := decode(client.get(resource_path("jobs", named)), JobView)):
            wait()
        return job


def _last_exit_code(client: Client, named: str) -> int:
    """Return the last exit code that a worker of it ended with, 1 to 255; 0: none did."""
    log = RemoteLog(client, {"job": named, "type": [WorkerExited.TYPE]})
    facts = [known.data for seen in log.between(0, log.position()) if (known := known_event(seen.event))]
    codes = [fact.exit_code for fact in facts if isinstance(fact, WorkerExited) and fact.exit_code is not None]
    return codes[-1] if codes and 0 < codes[-1] < 256 else 0
