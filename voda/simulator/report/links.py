"""Where to look further: the run's log, the jobs that waited longest, and the commands that explain them."""

import shlex
from collections.abc import Iterable
from heapq import nlargest
from operator import attrgetter
from urllib.parse import quote

from voda.projections.history import FinishedJob
from voda.simulator.report.run_summary import RunOutcome
from voda.simulator.report.svg import element, text
from voda.simulator.report.units import span

_LONGEST = 3
_MOST_NAME = 60


def exploring(run: RunOutcome, log: str | None) -> Iterable[str]:
    """Yield what stands below a run's picture; nothing where its log was not kept.

    Args:
        run: whose log it is.
        log: path relative to the page.
    """
    if log is None:
        return
    link = element("a", text(log), href=quote(log))
    words = f"Every event of this run, decisions and reasons included: {link}. To be called in the folder of this page:"
    yield element("p", words, class_="soft")
    waited = [job for job in nlargest(_LONGEST, run.history.finished, key=attrgetter("queueing_s")) if job.queueing_s]
    commands = [*(_explain(log, job) for job in waited), f"voda replay {shlex.quote(log)} --verify"]
    yield element("pre", element("code", text("\n".join(commands))))


def _explain(log: str, job: FinishedJob) -> str:
    # A name that breaks the line or hides its end would make another command of it.
    name = job.job_id if job.job_id.isprintable() and len(job.job_id) <= _MOST_NAME else "JOB"
    return f"voda explain {shlex.quote(log)} {shlex.quote(name)}  # waited {span(job.queueing_s)}"
