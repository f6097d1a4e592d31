"""Elastic-Value: each GPU goes where it shortens the sum of all completion times the most.

It knows of a job its epochs, the speedup T(n) and the work left W that were learned, the cost of its restarts, the GPU
time it has had, and its category. The rule, at each decision:

1. Sizes. A job may have its minimum, powers of two within a node, whole nodes above, and what it has: these fit
   together and leave no node torn. One that runs at some sizes only may have these. Up to 4 times the size asked for;
   2 times until two sizes of its kind are measured.
2. Line. Jobs stand in the order of W times the least (1 + 0.3 n) / T(n), the work left at a fixed price of GPUs.
3. Value of work. A second of work less ends a job 1 / T(n) earlier and sets n / T(n) GPU seconds free, by which each
   job behind it in the line ends over the capacity C earlier. So it is worth v = min over n of (1 + q n) / T(n), with
   q = 1.5 (jobs behind + 1) / C. Who has waited counts more: v times stretch ^ `fairness`, the stretch being what the
   job needs from its submission to its end over what it would need on an equal share of the GPUs (about the rho of
   finish-time fairness). It grows for as long as a job waits, so that none waits for ever.
4. Hand out. Maximise the sum of v T(n) within C: each step of each job's concave hull, most value per GPU first, then
   what is left to whoever gains most. A size other than the present one counts only H / (H + cost of a restart) of its
   value, H being what the job will still take, 20 minutes at most; where it grows, as long as GPUs stay free of late.
   So growth, preemption and spare GPUs need no rules of their own.

Constants are flat: a factor of two changes the mean completion time by 1 % or less (Pollux workloads, both loads).
Sizes are replicas, `gpus` those of a replica.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar, Final, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Allocation
from voda.domain.reasons.policies import ByValue, LessValue, PolicyCause
from voda.domain.sizes import JobSizes
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import Shares, explained
from voda.policies.toolkit.estimates import kind_of, remaining_s, speedup
from voda.policies.toolkit.order import by_submission
from voda.policies.toolkit.parameters import parameters

_PRICE: Final = 1.5
"""Factor on the jobs behind: more come than are here."""
_LINE_PRICE: Final = 0.3
"""Jobs per GPU; 0 would order by time at full width, infinity by GPU time."""
_RUNNING: Final = 0.8
"""What a running job lacks counts as this share of it in the line."""
_HORIZON_S: Final = 1200.0
"""Nobody knows what comes: a new size has to pay for its restart within that time."""
_STAYS: Final = 0.05
"""The present size counts so much more."""
_MOST_TIMES: Final = 4
_MOST_TIMES_UNMEASURED: Final = 2
"""The size asked for: beyond, measurements are too far away."""
_ASSUMED_EFFICIENCY: Final = 0.75
"""At the size asked for, until two sizes are measured (Amdahl's law through that)."""
_MOST_COST: Final = 5.0
"""Times the pool's `resize_cost_s`: a restart that seems to cost more was measured wrong."""
_FINER: Final = 1.1
"""Beyond a node, a size is so many times the one below it at least."""
_NEW_GPU_S: Final = 60.0
"""Service that a job without any counts as."""
_LEAST_S: Final = 1.0
_LEAST_SPEED: Final = 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ElasticValueParameters(Struct, frozen=True, kw_only=True):
    fairness: Annotated[
        float,
        Meta(ge=0, le=4, description="How much more a job counts that waits: by its stretch to this power; 0 = no."),
    ] = 1.0


class ElasticValue:
    name: ClassVar[str] = "elastic-value"
    title: ClassVar[str] = "Each GPU where it saves the most completion time"
    paper: ClassVar[str] = "Own; cf. Berg et al., heSRPT: Parallel Scheduling to Minimize Mean Slowdown, 2020"
    weighs_restarts: ClassVar[bool] = True
    parameters: ClassVar[type[ElasticValueParameters]] = ElasticValueParameters

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_submission(view)
        if not jobs:
            return Allocation(replicas={}, reasons={})
        offers = _offers(view, jobs, now)
        stretch = offers.stretch ** parameters(view, self.name, self.parameters).fairness
        lasts_s = max(view.surplus.lasts_s(0, now)[0], _LEAST_S)
        handout = _Handout(offers, _worth(offers, stretch, view.capacity_gpus), view.capacity_gpus, lasts_s)
        handout.take_steps()
        handout.take_rest()
        handout.take_odd_rest()
        ids = [job.spec.job_id for job in jobs]
        shares = Shares(Gpus(handout.free), dict(zip(ids, handout.counts.tolist(), strict=True)))
        places = {job_id: place for place, job_id in enumerate(ids)}
        return explained(
            view,
            shares,
            why=lambda spec: handout.why(places[spec.job_id]),
            why_not=lambda spec: handout.why_not(places[spec.job_id]),
        )


class _Prospect(Struct, frozen=True, kw_only=True, gc=False):
    """What is believed of one job."""

    sizes: Sequence[int]
    curve: Sequence[float]
    """T(n) as it was learned."""
    serial: float
    """Above 0: it was not, and this is what does not scale (Amdahl's law)."""
    per_node: int
    most: int
    """That it may ever have."""
    valid: JobSizes | None
    """Where it does not run at all of them."""
    had: int
    left_s: float
    expected_s: float
    cost_s: float
    stretch: float

    def speeds(self, sizes: Sequence[int]) -> list[float]:
        """Return T(n) of sizes, 0 of 0."""
        if self.serial:
            return [size / (1 + self.serial * (size - 1)) for size in sizes]
        return list(map(self.curve.__getitem__, sizes))


class _Offers(Struct, frozen=True, kw_only=True):
    """What jobs may have, one row a job; rows of sizes end with the largest one again and again."""

    sizes: Ints
    speed: Floats
    """T(n) of each size."""
    gpus: Ints
    """Shape (jobs, 1)."""
    had: Ints
    """Shape (jobs, 1)."""
    left_s: Floats
    """W; infinite where unknown."""
    expected_s: Floats
    """The same, as believed where it is unknown."""
    cost_s: Floats
    stretch: Floats
    """>= 1; see the module."""
    prospects: Sequence[_Prospect]


def _offers(view: ClusterState, jobs: Sequence[Job], now: float) -> _Offers:
    node = max((each.usable_gpus for each in view.nodes.values()), default=1)
    unknown = [job for job in jobs if remaining_s(view, job) == math.inf]
    served = _most_served(view, jobs, now) if unknown else {}
    pool = _Pool(view, now, node, view.capacity_gpus / len(jobs), served)
    rows = [_prospect(pool, job) for job in jobs]
    width = max(len(row.sizes) for row in rows)

    def table(of: Sequence[Sequence[float]]) -> Floats:
        return np.array([[*each, *[each[-1]] * (width - len(each))] for each in of])

    return _Offers(
        sizes=table([row.sizes for row in rows]).astype(np.int64),
        speed=np.maximum(table([row.speeds(row.sizes) for row in rows]), _LEAST_SPEED),
        gpus=np.array([[job.spec.gpus_per_replica] for job in jobs]),
        had=np.array([[row.had] for row in rows]),
        left_s=np.array([row.left_s for row in rows]),
        expected_s=np.array([row.expected_s for row in rows]),
        cost_s=np.array([row.cost_s for row in rows]),
        stretch=np.array([row.stretch for row in rows]),
        prospects=rows,
    )


def _most_served(view: ClusterState, jobs: Sequence[Job], now: float) -> Mapping[tuple[str, str], float]:
    """Return kind -> most GPU seconds that one of its live jobs has had."""
    most: dict[tuple[str, str], float] = {}
    for job in jobs:
        kind = kind_of(view, job)
        most[kind] = max(most.get(kind, _NEW_GPU_S), job.service_by(now))
    return most


class _Pool(NamedTuple):
    """What is alike for all jobs: GPUs of the largest node and of an equal share, `_most_served`."""

    view: ClusterState
    now: float
    node_gpus: int
    share_gpus: float
    most_served: Mapping[tuple[str, str], float]


def _prospect(pool: _Pool, job: Job) -> _Prospect:
    """Return what is believed of a job."""
    view, now, spec = pool.view, pool.now, job.spec
    curve, left_s, estimate = speedup(view, job), remaining_s(view, job), view.estimates.get(spec.job_id)
    had = min(len(view.plan.placement.get(spec.job_id, ())), spec.max_replicas)
    is_assumed = estimate is None or estimate.is_assumed
    most = min(spec.max_replicas, (_MOST_TIMES_UNMEASURED if is_assumed else _MOST_TIMES) * spec.requested)
    per_node = max(1, pool.node_gpus // max(1, spec.gpus_per_replica))
    serial = 0.0
    if is_assumed and spec.requested > 1 and curve[spec.requested] == spec.requested:
        # Linear is what nobody knows better.
        serial = (1 / _ASSUMED_EFFICIENCY - 1) / (spec.requested - 1)
        left_s *= _ASSUMED_EFFICIENCY
    expected_s = left_s
    if left_s == math.inf:
        # As long as the one of its kind that has had most, and that as long again: in powers of two, so that two such
        # jobs do not take turns.
        most_served = pool.most_served[kind_of(view, job)]
        expected_s = most_served - max(0.0, job.service_by(now)) + 2.0 ** math.floor(math.log2(most_served))
    cost_s = view.settings.resize_cost_s
    if estimate is not None:
        cost_s = min(estimate.resize_cost_s, _MOST_COST * cost_s)
    ran_s = max(0.0, job.running_by(now))
    fair = min(max(spec.min_replicas, int(pool.share_gpus / max(1, spec.gpus_per_replica))), spec.max_replicas)
    fair_speed = max(curve[fair], _LEAST_SPEED) if not serial else fair / (1 + serial * (fair - 1))
    stretch = 1 + max(0.0, now - job.submitted_at - ran_s) / (ran_s + max(expected_s / fair_speed, _LEAST_S))
    return _Prospect(
        sizes=_sizes(spec.min_replicas, max(most, spec.min_replicas), per_node, had, spec.sizes),
        curve=curve,
        serial=serial,
        per_node=per_node,
        most=spec.max_replicas,
        valid=spec.sizes,
        had=had,
        left_s=left_s,
        expected_s=expected_s,
        cost_s=cost_s,
        stretch=stretch,
    )


@lru_cache(maxsize=4096)
def _sizes(least: int, most: int, each: int, had: int, valid: JobSizes | None) -> Sequence[int]:
    """Return the sizes that a job may have, ascending, of those at which it runs; `each` fill a node."""
    sizes = [least]
    for n in range(least + 1, most + 1) if valid is None else valid:
        if valid is None:
            fits = n & (n - 1) == 0 if n < each else n % each == 0 and n >= _FINER * sizes[-1]
        else:
            fits = least < n <= most and (n <= each or n >= _FINER * sizes[-1])
        if fits:
            sizes.append(n)
    keeps = had >= least and (valid is None or had in valid)
    return sorted({*sizes, had}) if keeps else sizes


def _worth(offers: _Offers, weight: Floats, capacity: int) -> Floats:
    """Return the value of a second of work of each job, by its place in the line."""
    held, is_running = offers.sizes * offers.gpus, offers.had[:, 0] > 0
    line = offers.expected_s * ((1 + _LINE_PRICE * held) / offers.speed).min(axis=1)
    line = np.where(is_running, _RUNNING * line, line)
    behind = np.empty(len(line))
    behind[np.argsort(-line, kind="stable")] = np.arange(len(line))
    price = _PRICE * (behind + 1) / max(capacity, 1)
    worth: Floats = weight * ((1 + price[:, None] * held) / offers.speed).min(axis=1)
    return worth


def _lasting(offers: _Offers, sizes: Ints, speed: Floats, growth_lasts_s: float) -> Floats:
    """Return what is left of the value of sizes, a table of a row for each job, by restarts that they cost."""
    # Who waits pays for a start sooner or later: for it, this is no reason to wait on.
    left_s = np.where(offers.had > 0, offers.left_s[:, None], math.inf)
    horizon_s = np.minimum(left_s / speed, _HORIZON_S)
    is_growth = (sizes > offers.had) & (offers.had > 0)
    horizon_s = np.where(is_growth, np.minimum(horizon_s, growth_lasts_s), horizon_s)
    cost_s = offers.cost_s[:, None]
    lasting = np.where(cost_s > 0, horizon_s / np.maximum(horizon_s + cost_s, _LEAST_SPEED), 1.0)
    return np.where(sizes == offers.had, 1 + _STAYS, lasting)


class _Handout:
    """Who has how many GPUs; changed in place while they are handed out."""

    def __init__(self, offers: _Offers, worth: Floats, gpus: int, growth_lasts_s: float) -> None:
        self.free = gpus
        self.counts = np.zeros(len(worth), dtype=np.int64)
        """Replicas."""
        self._offers, self._worth, self._growth_lasts_s = offers, worth, growth_lasts_s
        self._values = self._value(offers.sizes, offers.speed)
        """Of each size: the seconds per second by which all completion times together shrink."""
        self._held = offers.sizes * offers.gpus
        self._per_gpu = np.zeros(len(worth))
        """Value per GPU of the last step that a job took."""
        self._first_per_gpu = np.zeros(len(worth))
        """The same of its first step."""
        self._next_per_gpu = 0.0
        """The same of the best step that nobody took."""

    def take_steps(self) -> None:
        """Take the steps of all hulls, most value per GPU first; a job whose step does not fit takes no later one."""
        per_gpu, rows, columns = _hull_steps(self._values, self._held)
        order = np.argsort(-per_gpu, kind="stable")
        held, counts, last = [0] * len(self._values), self.counts.tolist(), self._per_gpu.tolist()
        is_over = [False] * len(held)
        steps = zip(
            per_gpu[order].tolist(),
            rows[order].tolist(),
            self._held[rows[order], columns[order]].tolist(),
            self._offers.sizes[rows[order], columns[order]].tolist(),
            strict=True,
        )
        self._first_per_gpu[rows[::-1]] = per_gpu[::-1]
        for density, row, gpus, size in steps:
            if is_over[row] or gpus - held[row] > self.free:
                is_over[row] = True
                self._next_per_gpu = max(self._next_per_gpu, density)
                continue
            self.free -= gpus - held[row]
            held[row], counts[row], last[row] = gpus, size, density
        self.counts, self._per_gpu = np.array(counts, dtype=np.int64), np.array(last)

    def take_rest(self) -> None:
        """Give what is left to whoever gains most by it, again and again."""
        self._take_best(self._offers.sizes, self._values)

    def take_odd_rest(self) -> None:
        """Give what is still left at any size within a node, or of whole nodes, to those who have some.

        Here a job may have more than is known of it: nobody else can use it.
        """
        offers = self._offers
        if self.free <= 0 or not self.counts.any():
            return
        each = np.array([prospect.per_node for prospect in offers.prospects])
        most = np.array([prospect.most for prospect in offers.prospects])
        most = np.minimum(self.counts + self.free // offers.gpus[:, 0], most)
        sizes = np.where(most > each, most // each * each, most)
        for row, prospect in enumerate(offers.prospects):
            if prospect.valid is not None:
                sizes[row] = prospect.valid.floor(int(sizes[row]))
        sizes = np.where(self.counts > 0, np.maximum(sizes, self.counts), offers.sizes[:, 0])[:, None]
        self._take_best(sizes, self._value(sizes, self._speeds(sizes)))

    def _speeds(self, sizes: Ints) -> Floats:
        rows = zip(self._offers.prospects, sizes.tolist(), strict=True)
        speeds: Floats = np.maximum(np.array([prospect.speeds(row) for prospect, row in rows]), _LEAST_SPEED)
        return speeds

    def _take_best(self, sizes: Ints, values: Floats) -> None:
        """Give sizes of a table, a row for each job, that fit what is left, the one of most gain first."""
        if self.free <= 0:
            return
        gpus = self._offers.gpus
        held, now_held = sizes * gpus, self.counts * gpus[:, 0]
        present = self.counts[:, None]
        now_valued = self._value(present, self._speeds(present))[:, 0] * (self.counts > 0)
        while self.free > 0:
            more = held - now_held[:, None]
            gains = np.where((more > 0) & (more <= self.free), values - now_valued[:, None], 0.0)
            row, column = divmod(int(gains.argmax()), gains.shape[1])
            if (gain := float(gains[row, column])) <= 0:
                break
            step = int(more[row, column])
            self._per_gpu[row] = gain / step
            self.free -= step
            now_held[row], now_valued[row] = held[row, column], values[row, column]
            self.counts[row] = sizes[row, column]

    def _value(self, sizes: Ints, speed: Floats) -> Floats:
        """Return what sizes are worth, a table of a row for each job."""
        lasting = _lasting(self._offers, sizes, speed, self._growth_lasts_s)
        value: Floats = self._worth[:, None] * speed * lasting
        return value

    def why(self, row: int) -> PolicyCause:
        return ByValue(per_gpu=round(float(self._per_gpu[row]), 3), next_per_gpu=round(self._next_per_gpu, 3))

    def why_not(self, row: int) -> PolicyCause | None:
        if not len(taken := self._per_gpu[self.counts > 0]):
            return None
        here, least = round(float(self._first_per_gpu[row]), 3), round(float(taken.min()), 3)
        # Otherwise it waits for want of GPUs alone.
        return LessValue(per_gpu=here, least_per_gpu=least) if here < least else None


def _hull_steps(values: Floats, held: Ints) -> tuple[Floats, Ints, Ints]:
    """Return the steps of the concave hulls of values over GPUs, from none on: value per GPU, row, column.

    The steps of one row come in their order, with ever less value per GPU; all above 0.
    """
    rows = np.arange(len(values))
    value, gpus = np.zeros((len(values), 1)), np.zeros((len(values), 1))
    steps: list[tuple[Floats, Ints, Ints]] = []
    while len(rows):
        more = held[rows] - gpus
        slopes = np.where(more > 0, (values[rows] - value) / np.maximum(more, 1), -math.inf)
        columns = slopes.argmax(axis=1)
        best = slopes[np.arange(len(rows)), columns]
        rises = best > 0
        rows, columns = rows[rises], columns[rises]
        steps.append((best[rises], rows, columns))
        value, gpus = values[rows, columns][:, None], held[rows, columns][:, None]
    return tuple(map(np.concatenate, zip(*steps, strict=True)))  # type: ignore[return-value]  # three columns
