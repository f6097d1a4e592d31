"""The page of a recorded log: who had which GPU when, what became of each job, and how to ask further.

Rule: as in document.py, every name is hostile until it has passed through `text` or `element`.
"""

from collections.abc import Iterable

from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import Execution, measure
from voda.simulator.report.comparison_page import head_of
from voda.simulator.report.pictures import RunPictures
from voda.simulator.report.run_summary import RunOutcome, about
from voda.simulator.report.svg import element, text
from voda.simulator.report.units import counted, percent, span

_MOST_ROWS = 500


def recorded_run(history: History, timeline: Timeline, *, policy: str, placer: str, source: str) -> RunOutcome:
    """Return what the report knows of a log that was recorded, not simulated.

    Fairness is left out: it compares with the time on an own slice of the cluster, which nobody has measured.
    """
    execution = Execution(workload=source.rpartition("/")[2], policy=policy, placer=placer, decisions_s=(), wall_s=0.0)
    running_s = {job.job_id: job.running_s for job in history.finished}
    result = measure(history, timeline, execution, lambda job_id, _gpus: running_s[job_id])
    return RunOutcome(
        result=result,
        history=history,
        timeline=timeline,
        source=source,
        unfinished=tuple(history.live),
    )


def timeline_page(run: RunOutcome) -> str:
    """Return one HTML page without script or outside resources."""
    pictures = RunPictures([run])
    title = f"{run.result.workload}: who had which GPU when"
    body = (
        element("h1", text(title)),
        element("p", f"{about([run])}; {_summary(run)}", class_="soft"),
        element("figure", pictures.draw(run, run.result.policy)),
        *_jobs(run),
        element("p", f"Ask further: {_commands(run)}", class_="soft"),
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            *head_of(title),
            "</head>",
            "<body>",
            *body,
            "</body></html>\n",
        )
    )


def _summary(run: RunOutcome) -> str:
    live = f"; {counted(len(run.unfinished), 'job')} still live" if run.unfinished else ""
    return (
        f"decided by {text(run.result.policy)}; {percent(run.result.utilisation)} of the GPU time held until the last"
        f" job ended{live}."
    )


def _jobs(run: RunOutcome) -> Iterable[str]:
    """Yield a table of the jobs that ended, the latest first."""
    jobs = sorted(run.history.finished, key=lambda job: job.finished_at, reverse=True)
    heads = ("job", "outcome", "waited", "ran", "all in all", "GPU time", "resizes", "restarts")
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in heads)))
    rows = (element("tr", *_cells(job)) for job in jobs[:_MOST_ROWS])
    left = f" The latest {_MOST_ROWS} of {counted(len(jobs), 'job')}." if len(jobs) > _MOST_ROWS else ""
    caption = element("caption", f"Jobs that ended.{left}")
    yield element("div", element("table", caption, head, element("tbody", *rows)), class_="scroll", tabindex="0")


def _cells(job: FinishedJob) -> Iterable[str]:
    yield element("th", text(job.job_id), scope="row")
    figures = (span(job.queueing_s), span(job.running_s), span(job.jct_s), span(job.gpu_s))
    for words in (job.outcome, *figures, str(job.resizes), str(job.restarts)):
        yield element("td", text(words))


def _commands(run: RunOutcome) -> str:
    commands = (f"voda events {run.source}", f"voda replay {run.source} --verify")
    return ", ".join(element("code", text(command)) for command in commands)
