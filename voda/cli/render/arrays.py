"""Arrays of jobs in the lists and descriptions: one line for all tasks of an array.

Rule: pure; counts come from the server, which knows the tasks that are not listed too.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.cli.render.job_text import NONE
from voda.cli.render.terminal import plain
from voda.text import counted, full, since, until
from voda.wire.jobs import ENDED, ArrayView, DependencyView, JobView

_ORDER: Final = ("Running", "Waiting", "Preempted", "Submitted", "Canceling", "Completed", "Failed", "Canceled")
_STYLES: Final = {"Running": "green", "Waiting": "yellow", "Submitted": "yellow"}


def array_name(array: ArrayView) -> str:
    """Return such as `sweep[0-99]`."""
    return plain(f"{array.name}[{array.indices}]")


def _live_tasks(array: ArrayView) -> int:
    return sum(number for state, number in array.states.items() if state not in ENDED)


def states(array: ArrayView) -> str:
    """Return such as `12 running, 3 failed`."""
    known = sorted(array.states.items(), key=lambda pair: _ORDER.index(pair[0]) if pair[0] in _ORDER else len(_ORDER))
    return ", ".join(f"{number} {state.lower()}" for state, number in known)


def array_row(array: ArrayView, tasks: Sequence[JobView], at: datetime) -> list[str | Text]:
    """Return the cells of an array in the list of jobs; `tasks` are those that are listed."""
    done = array.states.get("Completed", 0)
    style = next((_STYLES[state] for state in _STYLES if array.states.get(state)), "")
    return [
        array_name(array),
        Text(states(array), style="bold red" if array.states.get("Failed") else style),
        str(array.replicas),
        f"{done}/{array.count} {done / array.count:.0%}",
        NONE,
        _eta(array, tasks, at),
        since(array.submitted_at, at),
    ]


def bound_text(at_once: int) -> str:
    """Return how many tasks may be at work at once."""
    return f"at most {counted(at_once, 'task')} at once" if at_once else "all tasks at once"


def grouped(
    jobs: Sequence[JobView], arrays: Mapping[str, ArrayView]
) -> Iterator[tuple[ArrayView | None, Sequence[JobView]]]:
    """Yield each job by itself, and the tasks of each array together, where the first of them stands."""
    tasks: dict[str, list[JobView]] = {}
    for job in jobs:
        if job.array is not None:
            tasks.setdefault(job.array.array_id, []).append(job)
    for job in jobs:
        array = arrays.get(job.array.array_id) if job.array is not None else None
        if array is None:
            yield None, [job]
        elif array.array_id in tasks:
            yield array, tasks.pop(array.array_id)


def pool_text(pool: str, namespace: str) -> str:
    """Return a pool, with the namespace unless that is `default`."""
    return pool if namespace == "default" else f"{pool}, namespace {namespace}"


def array_description(array: ArrayView, tasks: RenderableType, at: datetime) -> RenderableType:
    """Return an array in full, with the table of its tasks."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("Array", array_name(array))
    facts.add_row("Tasks", f"{array.count}: {states(array)}")
    if array.user:
        facts.add_row("User", plain(array.user))
    facts.add_row("Pool", plain(pool_text(array.pool, array.namespace)))
    facts.add_row("Replicas", f"{array.replicas} of all tasks; {bound_text(array.at_once)}")
    facts.add_row("Submitted", f"{full(array.submitted_at, at)} ({since(array.submitted_at, at)} ago)")
    if array.finished_at:
        facts.add_row("Ended", f"{full(array.finished_at, at)} ({since(array.finished_at, at)} ago)")
    facts.add_row("Time", f"{array.gpu_s / 3600:.2f} GPU-hours")
    return Group(facts, Text(""), tasks)


def after_text(after: Sequence[DependencyView]) -> str:
    """Return what a job comes after, as `--after` says it."""
    return ", ".join(
        f"{'array ' if each.array else ''}{each.owner}{'/' if each.owner else ''}{each.array or each.job_id}"
        f"{'' if each.condition == 'ok' else ':any'}"
        for each in after
    )


def _eta(array: ArrayView, tasks: Sequence[JobView], at: datetime) -> str:
    """Return when the last task is expected to end, where that is known of all of them."""
    if array.finished_at is not None:
        return f"{since(array.finished_at, at)} ago"
    live = [job.forecast.finishes_at for job in tasks if job.phase not in ENDED]
    ends = [end for end in live if end is not None]
    if not ends or len(ends) < _live_tasks(array):
        return NONE
    return f"ends {until(max(ends), at)}"
