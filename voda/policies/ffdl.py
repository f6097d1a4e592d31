"""FfDL Optimizer: the sizes with the highest total speedup, by dynamic programming over jobs and GPUs.

Saxena et al., MASCOTS 2020. Jobs whose minimum does not fit are trimmed in order of submission, a later small one
passing a large one; each other job then has a size in [min, max], and the sum of T(n) is the highest there is, to 1e-9
per step.

A knapsack. P[k] is the best total on k GPUs left over; one choice after the other is added to it, all k at once:
P'[k] = max over s of P[k - s * gpus] + worth[s]. Jobs with falling gains and equal GPUs per replica are one choice
together, because their best s steps are simply the s highest gains; every other job is a choice of its own, and one at
whose end a job would have no size is worth minus infinity.
Among equal sums, the jobs of the first choices get more: those with falling gains first, then by their order, and
among equal gains the earlier job.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import gcd
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.plan import Allocation
from voda.domain.reasons.policies import BestSpeedup
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import Shares, explained, give_first, grow_by_gain, least
from voda.policies.toolkit.estimates import speedup
from voda.policies.toolkit.order import by_submission


class Ffdl:
    name: ClassVar[str] = "ffdl"
    title: ClassVar[str] = "The highest total speedup there is, for the jobs that fit"
    paper: ClassVar[str] = "Saxena et al., Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_submission(view)
        shares = give_first(jobs, view.capacity_gpus, least)
        fitting = [job for job in jobs if shares.replicas[job.spec.job_id]]
        curves = {job.spec.job_id: speedup(view, job) for job in fitting}
        add_best_steps([job.spec for job in fitting], curves, shares)
        # A gain too small to show in the sum is still a gain.
        grow_by_gain(fitting, shares, lambda job: curves[job.spec.job_id])
        total = sum(curve[shares.replicas[job_id]] for job_id, curve in curves.items())
        cause = BestSpeedup(speedup=round(total, 2), gpus=view.capacity_gpus)
        return explained(view, shares, why=lambda _spec: cause)


_NOISE = 1e-9
"""Gains that rise by less than this are falling ones, rounded."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _StepGains(Struct, frozen=True):
    """All steps of all jobs, one replica each, job after job."""

    gains: Floats
    owners: Ints
    """Which job a step belongs to; same shape."""


class _Choice(Struct, frozen=True):
    """Up to len(worth) - 1 steps, `gpus` GPUs each."""

    gpus: Gpus
    worth: Floats
    """Speedup added by the best s steps, s = 0, 1, ..."""
    owners: Ints
    """The job that takes step s + 1; shape (len(worth) - 1,)."""


def add_best_steps(specs: Sequence[JobSpec], curves: Mapping[str, Sequence[float]], shares: Shares) -> None:
    """Raise the sizes of jobs that have their minimum so that the sum of T(n) is the highest there is.

    Earlier jobs win ties. `curves` is job id -> T(n), of shape at least (max_replicas + 1,).
    """
    specs = [spec for spec in specs if spec.is_elastic]
    if not shares.free:
        return
    choices = _choices(specs, _steps(specs, curves))
    unit = Gpus(gcd(*(choice.gpus for choice in choices)))
    taken = _best(choices, shares.free // unit, unit) if choices else []
    for choice, steps in zip(choices, taken, strict=True):
        owners, counts = np.unique(choice.owners[:steps], return_counts=True)
        for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
            shares.replicas[specs[owner].job_id] += count
        shares.free -= steps * choice.gpus


def _steps(specs: Sequence[JobSpec], curves: Mapping[str, Sequence[float]]) -> _StepGains:
    speedups: list[float] = []
    for spec in specs:
        speedups.extend(curves[spec.job_id][spec.min_replicas : spec.max_replicas + 1])
    owners = np.repeat(np.arange(len(specs)), [1 + spec.max_replicas - spec.min_replicas for spec in specs])
    is_inside = owners[1:] == owners[:-1]
    return _StepGains(np.diff(np.array(speedups))[is_inside], owners[1:][is_inside])


def _choices(specs: Sequence[JobSpec], steps: _StepGains) -> list[_Choice]:
    """Return the choices worth having: the joint ones, most steps first, then jobs with rising gains, or with sizes."""
    rises = (np.diff(steps.gains) > _NOISE) & (steps.owners[1:] == steps.owners[:-1])
    is_single = np.array([spec.sizes is not None for spec in specs], dtype=bool)
    is_single[steps.owners[1:][rises]] = True
    gpus = np.array([spec.gpus_per_replica for spec in specs])
    is_joint = ~is_single[steps.owners] & (steps.gains > 0)
    joint = [
        _joint(Gpus(size), steps.gains[mask], steps.owners[mask])
        for size in np.unique(gpus[steps.owners[is_joint]])
        if (mask := is_joint & (gpus[steps.owners] == size)).any()
    ]
    joint.sort(key=lambda choice: -len(choice.worth))
    bounds = np.searchsorted(steps.owners, np.arange(len(specs) + 1)).tolist()
    single = [
        _Choice(Gpus(gpus[owner]), _worth_of_sizes(specs[owner], steps.gains[start:stop]), steps.owners[start:stop])
        for owner, (start, stop) in enumerate(pairwise(bounds))
        if is_single[owner]
    ]
    return joint + single


def _worth_of_sizes(spec: JobSpec, gains: Floats) -> Floats:
    worth = _summed(gains)
    if spec.sizes is not None:
        numbers = range(spec.min_replicas, spec.max_replicas + 1)
        worth[[number not in spec.sizes for number in numbers]] = -np.inf
    return worth


def _joint(gpus: Gpus, gains: Floats, owners: Ints) -> _Choice:
    best_first = np.argsort(-gains, kind="stable")
    return _Choice(gpus, _summed(gains[best_first]), owners[best_first])


def _summed(gains: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(gains)])


def _best(choices: Sequence[_Choice], units: int, unit: Gpus) -> list[int]:
    """Return how many steps of each choice are in the best total on `units` x `unit` GPUs."""
    tables = [np.zeros(units + 1)]
    for choice in choices[:-1]:
        tables.append(_with(tables[-1], choice, choice.gpus // unit))
    taken = []
    for choice, before in zip(reversed(choices), reversed(tables), strict=True):
        width = choice.gpus // unit
        worth = choice.worth[: units // width + 1]
        steps = int(np.argmax(before[units - width * np.arange(len(worth))] + worth))
        taken.append(steps)
        units -= steps * width
    return taken[::-1]


def _with(before: Floats, choice: _Choice, width: int) -> Floats:
    """Return the best totals once the choice is added to them; shape as `before`."""
    if not before[-1]:
        # The first choice has all GPUs to itself, and it is the one with the most steps.
        steps = np.minimum(np.arange(len(before)) // width, len(choice.worth) - 1)
        return np.maximum.accumulate(choice.worth)[steps]
    best = before.copy()
    candidate = np.empty_like(before)
    for count in range(1, min(len(choice.worth), (len(before) - 1) // width + 1)):
        if choice.worth[count] == -np.inf:
            continue
        reach = len(before) - count * width
        np.add(before[:reach], choice.worth[count], out=candidate[:reach])
        np.maximum(best[-reach:], candidate[:reach], out=best[-reach:])
    return best
