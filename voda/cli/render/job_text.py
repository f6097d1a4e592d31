"""A job in a word or a sentence: state, size, progress, queue, forecast.

Rule: pure; a forecast is worded as an expectation.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from voda.domain.gpus import GpuRequest
from voda.domain.job import MetricValue, Phase
from voda.events.text.cells import request_text
from voda.text import counted, short, since, time_of_day, until
from voda.wire.explanations import ExplanationView
from voda.wire.jobs import ENDED, JobView

if TYPE_CHECKING:
    from rich.text import Text

NONE = "-"
NOT_CONSIDERED = "no plan has considered this job yet"
_STYLES = {
    "Running": "green",
    "Completed": "blue",
    "Failed": "bold red",
    "Waiting": "yellow",
    "Submitted": "yellow",
    "Preempted": "magenta",
    "BackOff": "yellow",
    "Halting": "magenta",
    "Halted": "magenta",
    "Canceling": "dim",
    "Canceled": "dim",
}

_GOES_ON = "and it waits to go on from its checkpoint, or from the beginning without one"
_INTERRUPTIONS = {
    "preempted": f"a plan gave its GPUs to others, {_GOES_ON}",
    "drained": f"its workers had to leave a drained node, {_GOES_ON}",
    "refused": f"nodes do not take as many workers as it needs, {_GOES_ON}",
    "halted": f"it was halted and resumed, {_GOES_ON}",
    "failed": "its program failed, and it waits to be tried again",
    "failed_for_good": "the replicas that had not finished failed for good",
    "evicted": f"its workers were evicted, {_GOES_ON}",
    "node_lost": f"its node was lost, {_GOES_ON}",
}


def has_ended(job: JobView | ExplanationView) -> bool:
    """Return whether the job has ended."""
    return job.phase in ENDED


def launcher(job: JobView) -> str:
    """Return what starts the job's processes, with its kind; that of a plain program says nothing to its user."""
    if job.launcher == "program":
        return "none: a plain program"
    return f"{job.launcher} ({job.kind})" if job.launcher else f"not known ({job.kind})"


def exactly(job: JobView) -> str:
    """Return what names this job and no other, also where a newer job has its name."""
    return f"@{job.job_id}"


def state(job: JobView | ExplanationView, at: datetime | None = None) -> str:
    """Return the phase, or Preempted, Halting, Halted, Canceling or, at an instant, BackOff where that says more."""
    if job.is_canceling and not has_ended(job):
        return "Canceling"
    if job.is_halted:
        return "Halting" if job.phase is Phase.RUNNING else "Halted"
    if at is not None and not has_ended(job) and job.next_try_at is not None and job.next_try_at > at:
        return "BackOff"
    return "Preempted" if job.is_preempted else str(job.phase)


def state_text(job: JobView, at: datetime) -> "Text":
    """Return the state in its colour, and of a live job whose program failed or is silent that: `Running (silent 3m)`,
    `Waiting (try 2 of 7 in 12s)`.
    """
    from rich.text import Text

    said = ""
    if job.program_failures and not has_ended(job):
        said = f" ({next_try(job, at) or counted(job.program_failures, 'failure')})"
    if job.silent_since is not None:
        said += f" (silent {since(job.silent_since, at)})"
    return Text(f"{(word := state(job, at))}{said}", style=_STYLES.get(word, ""))


def silence(job: JobView, at: datetime) -> str:
    """Return `silent for 3m since it grew to 2`; empty where it is not."""
    if job.silent_since is None:
        return ""
    size = job.replicas
    how = "started" if job.silent_from in (0, size) else f"{'grew' if job.silent_from < size else 'shrank'} to {size}"
    return f"silent for {since(job.silent_since, at)} since it {how}"


def next_try(job: JobView | ExplanationView, at: datetime, when: Callable[[datetime], str] | None = None) -> str:
    """Return `try 2 of 7 in 12s`, and `try 2 of 7` once it is due; empty where the tries are not counted.

    With `when` it is a sentence: `waits 12s for its next try (2 of 7), next at 14:05:09`.
    """
    if not job.next_try:
        return ""
    said = f"try {job.next_try} of {job.most_tries}"
    if job.next_try_at is None or job.next_try_at <= at:
        return said
    wait = until(job.next_try_at, at)
    if when is None:
        return f"{said} {wait}" if wait == "now" else f"{said} in {wait}"
    said = f"for its next try ({job.next_try} of {job.most_tries}), next at {when(job.next_try_at)}"
    return f"waits {said}" if wait == "now" else f"waits {wait} {said}"


def held_up(job: ExplanationView, when: Callable[[datetime], str]) -> str:
    """Return what keeps a job from running as planned, and when that is tried again."""
    return f"{job.obstacle}; next try at {when(job.retry_at)}" if job.retry_at is not None else job.obstacle


def interruption(job: JobView | ExplanationView) -> str:
    """Return why a job that ran has no workers, as the rest of a sentence; empty where that is said otherwise."""
    if job.is_halted:
        return "no plan gives it workers until it is resumed"
    return _INTERRUPTIONS.get(job.interruption, "") if job.phase is Phase.WAITING else ""


def replicas(job: JobView) -> str:
    """Return current/min/max replicas; `2>3/1/4` when the plan in force gives it another number."""
    planned = f">{job.planned_replicas}" if job.planned_replicas != job.replicas and not has_ended(job) else ""
    return f"{job.replicas}{planned}/{job.min_replicas}/{job.max_replicas}"


def gpus_text(job: JobView | ExplanationView) -> str:
    """Return what each worker has of GPUs, after its number: ` of 2 GPUs`; empty where it is one."""
    if job.share is not None:
        return f" with {request_text(GpuRequest(milli=job.share.milli, memory_mib=job.share.memory_mib))} of a GPU"
    return "" if job.gpus_per_replica == 1 else f" of {job.gpus_per_replica} GPUs"


def progress(job: JobView) -> str:
    """Return epochs done of all with their share: 12/20 60%, 12/?; `-` where neither is known."""
    done, total = job.progress.epochs_done, job.progress.epochs
    if not done and not total:
        return NONE
    figure = f"{done:.1f}".removesuffix(".0")
    return f"{figure}/{total} {min(1.0, done / total):.0%}" if total else f"{figure}/?"


def queue(job: JobView) -> str:
    """Return the place in the queue: 2 = one goes before it."""
    return str(place) if (place := job.forecast.position) else NONE


def eta(job: JobView, at: datetime) -> str:
    """Return the next step and when: `starts 3m`, `ends 12m`; for an ended job, how long ago it ended."""
    if job.finished_at is not None:
        return f"{since(job.finished_at, at)} ago"
    if job.forecast.starts_at is not None:
        return f"starts {until(job.forecast.starts_at, at)}"
    return f"ends {until(job.forecast.finishes_at, at)}" if job.forecast.finishes_at else NONE


def waited_s(job: JobView, at: datetime) -> float:
    """Return the seconds without workers, up to now."""
    goes_on = not job.replicas and not has_ended(job)
    return job.waiting_s + (max(0.0, (at - job.counted_at).total_seconds()) if goes_on else 0.0)


def ran_s(job: JobView, at: datetime) -> float:
    """Return the seconds with workers, up to now."""
    goes_on = job.replicas and not has_ended(job)
    return job.running_s + (max(0.0, (at - job.counted_at).total_seconds()) if goes_on else 0.0)


def gpu_hours(job: JobView, at: datetime) -> float:
    """Return the GPU-hours that its workers held, up to now."""
    return (job.gpu_s + job.gpus * max(0.0, (at - job.counted_at).total_seconds())) / 3_600


def forecast(job: JobView, at: datetime) -> str:
    """Return the forecast as a sentence: `waits: 2nd in the order of expected starts; expected to start in 3m (14:05)`.

    That order is not the one of priority and submission: a job that is submitted later may find room before another.
    """
    made = job.forecast
    if has_ended(job) or job.is_halted:
        return ""
    parts = []
    if made.starts_at is not None:
        parts.append(f"to start {_when(made.starts_at, at)}")
    if made.finishes_at is not None:
        parts.append(f"to finish {_when(made.finishes_at, at)}")
    order = "in the order of expected starts" if made.made_at else "in the queue"
    place = f"waits: {ordinal(made.position)} {order}; " if made.position else ""
    if parts:
        return f"{place}expected {' and '.join(parts)}, if no more jobs are submitted"
    return f"{place}{'its own is not known' if place and made.made_at else 'no forecast yet'}"


def summary(job: JobView, at: datetime) -> str:
    """Return the job in one line."""
    parts = [f"{job.job_id}: {state(job, at)}"]
    if has_ended(job):
        parts[0] += f" after {short(waited_s(job, at) + ran_s(job, at))}"
    elif job.replicas or job.planned_replicas:
        parts.append(f"replicas {replicas(job)}")
    if job.progress.epochs_done or job.progress.epochs:
        parts.append(f"epochs {progress(job)}")
    parts += [f"{name} {figure(value)}" for name, value in list(job.progress.metrics.items())[:3]]
    if place := job.forecast.position:
        parts.append(f"{ordinal(place)} in the queue")
    if not has_ended(job) and (next_step := eta(job, at)) != NONE:
        parts.append(next_step)
    if job.program_failures and not has_ended(job):
        parts.append(f"{counted(job.program_failures, 'failure')}, the last: {job.last_failure}")
    if said := silence(job, at):
        parts.append(said)
    if not job.replicas and job.message:
        parts.append(job.message)
    return ", ".join(parts)


def figure(value: MetricValue) -> str:
    """Return the value of a metric."""
    return value if isinstance(value, str) else f"{value:.4g}"


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _when(instant: datetime, at: datetime) -> str:
    wait = until(instant, at)
    return "now" if wait == "now" else f"in {wait} ({time_of_day(instant, at)})"
