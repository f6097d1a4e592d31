"""What-if in figures: the recorded run, the same policy simulated, and the other policy, over the same jobs.

Rule: pure; it compares all three over the jobs that were open at the cut and completed in each of them. The difference
between the recorded and the re-simulated run is the error of the model, not the merit of the policy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import numpy as np
from msgspec import Struct

from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import integral
from voda.wire.base import instant
from voda.wire.what_ifs import ComparisonView, JobShiftView, RunFiguresView

_MOST_SHIFTS = 5
_NO_FIGURES = RunFiguresView(**dict.fromkeys(RunFiguresView.__struct_fields__, 0.0))


class FoldedRun(Struct, frozen=True, kw_only=True):
    history: History
    timeline: Timeline


class Cutoff(Struct, frozen=True, kw_only=True):
    """Where the runs part, and what decides from there on."""

    position: int
    at: float
    policy: str
    placer: str
    ended: Set[str]
    """Jobs that had ended before."""
    submitted: Set[str]
    """All jobs of the recorded log."""


def compare_runs(cut: Cutoff, *, recorded: FoldedRun, resimulated: FoldedRun, what_if: FoldedRun) -> ComparisonView:
    """Compare the three runs."""
    runs = (recorded, resimulated, what_if)
    completed = [{job.job_id: job for job in run.history.finished if job.outcome == "completed"} for run in runs]
    common = {job_id for job_id in completed[0] if job_id not in cut.ended and all(job_id in of for of in completed)}
    figures = [_figures(run, of, common, cut) for run, of in zip(runs, completed, strict=True)]
    shifts = [
        JobShiftView(
            job_id=job_id,
            recorded_jct_s=completed[0][job_id].jct_s,
            resimulated_jct_s=completed[1][job_id].jct_s,
            what_if_jct_s=completed[2][job_id].jct_s,
        )
        for job_id in common
    ]
    return ComparisonView(
        position=cut.position,
        at=instant(cut.at),
        policy=cut.policy,
        placer=cut.placer,
        jobs=len(common),
        left_out=len(cut.submitted - cut.ended - common),
        recorded=figures[0],
        resimulated=figures[1],
        what_if=figures[2],
        winners=_most(shifts, gain_s),
        losers=_most(shifts, lambda shift: -gain_s(shift)),
    )


def gain_s(shift: JobShiftView) -> float:
    """Return the seconds by which a job ends earlier under the other policy."""
    return shift.resimulated_jct_s - shift.what_if_jct_s


def _figures(
    run: FoldedRun, completed: Mapping[str, FinishedJob], common: Iterable[str], cut: Cutoff
) -> RunFiguresView:
    jobs = [completed[job_id] for job_id in sorted(common)]
    if not jobs:
        return _NO_FIGURES
    jct_s = np.array([job.jct_s for job in jobs])
    begin = cut.at if cut.ended else min(job.submitted_at for job in jobs)
    end = max(job.finished_at for job in jobs)
    steps = run.timeline.steps()
    there_gpu_s = integral(steps, steps.capacity, begin, end)
    held_gpu_s = integral(steps, steps.gpus_in_use, begin, end)
    return RunFiguresView(
        avg_jct_s=float(jct_s.mean()),
        p50_jct_s=float(np.percentile(jct_s, 50)),
        p90_jct_s=float(np.percentile(jct_s, 90)),
        makespan_s=end - begin,
        avg_queueing_s=float(np.mean([job.queueing_s for job in jobs])),
        restarts_per_job=float(np.mean([job.restarts for job in jobs])),
        utilisation=held_gpu_s / there_gpu_s if there_gpu_s > 0 else 0.0,
    )


def _most(shifts: Sequence[JobShiftView], gain: Callable[[JobShiftView], float]) -> tuple[JobShiftView, ...]:
    # The job id breaks ties so that the same question always gets the same answer.
    ordered = sorted(shifts, key=lambda shift: (-gain(shift), shift.job_id))
    return tuple(shift for shift in ordered[:_MOST_SHIFTS] if gain(shift) > 0)
