"""The six applications of the Pollux paper: how fast they step on a placement, and how far each step takes them.

Source: Qiao et al., "Pollux", OSDI'21, and the measurements in its artifact; progress is counted in iterations at
the smallest batch size. Rule: a batch split over replicas may come out larger or smaller than requested; everything
else is computed from the batch that comes out.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from voda.simulator.workload import Costs
from voda.simulator.workloads.pollux_step_times import (
    GPUS_PER_NODE,
    StepTimes,
    load_interpolated,
    load_step_times,
    read_rows,
)

EPOCHS: Mapping[str, int] = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
"""Applications and the epochs that complete them."""
SINGLE_REPLICA = frozenset({"ncf"})
"""Applications that are never spread."""
MOST_REPLICAS = 64
"""Measured."""
RESTART = Costs(start_s=30.0, resize_s=30.0, migrate_s=30.0)
"""Of the paper's simulator: every change restarts the job from a checkpoint."""

# The table of step times reaches to 16, but the paper's simulator accumulates gradients from 8 on.
_LARGEST_LOCAL_BATCH = {"yolov3": 8}
# Keeps a quotient such as 2048 / 8 + 2e-13 from being rounded up.
_SLACK = 1e-8


class Split(Struct, frozen=True, kw_only=True):
    """A batch spread over replicas."""

    local_batch: int
    """Samples per replica and pass."""
    accumulation: int
    """Passes whose gradients are only added up, before the one that synchronises."""
    batch: int
    """What comes out: replicas x passes x local batch."""


class BatchLimits(Struct, frozen=True, kw_only=True):
    """Batch sizes, in samples, that an application was measured with."""

    initial: int
    largest: int
    local_smallest: int
    local_largest: int

    def split(self, batch: int, replicas: int) -> Split:
        """Spread a batch of samples over replicas, accumulating gradients where it does not fit."""
        share = math.ceil(batch / replicas - _SLACK)
        accumulation = math.ceil(share / self.local_largest - _SLACK) - 1
        if replicas == 1 and batch > self.initial:
            accumulation = max(1, accumulation)
        passes = accumulation + 1
        local = min(math.ceil(share / passes - _SLACK), self.largest // (replicas * passes))
        return Split(local_batch=local, accumulation=accumulation, batch=replicas * local * passes)


class Epoch(Struct, frozen=True):
    """One row of a validation file."""

    progress: float
    """At the end of the epoch; iterations at the initial batch size."""
    iteration: int
    """At the end of the epoch; iterations at the batch size of the file."""
    signal: float
    """Square norm of the gradient."""
    noise: float
    """Variance of the gradient."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Application:
    """One application as measured; it caches results, because a run asks for the same ones again and again."""

    name: str
    limits: BatchLimits
    step_times: StepTimes
    validation: Mapping[int, Sequence[Epoch]]
    """Batch size -> one row per epoch; batch sizes ascend."""
    _epochs_s: dict[tuple[int, tuple[int, ...]], tuple[float, ...]] = field(default_factory=dict, init=False)
    _iteration_counts: dict[int, tuple[float, ...]] = field(default_factory=dict, init=False)

    @property
    def epochs(self) -> int:
        return EPOCHS[self.name]

    @functools.cached_property
    def goals(self) -> tuple[float, ...]:
        """Progress that ends each epoch, whatever the batch size."""
        return tuple(min(row.progress for row in rows) for rows in zip(*self.validation.values(), strict=True))

    def max_replicas(self, batch: int) -> int:
        """Return the largest number of replicas that a batch can be spread over, within what was measured."""
        if self.name in SINGLE_REPLICA:
            return 1
        return max(1, min(MOST_REPLICAS, batch // self.limits.local_smallest))

    def iteration_s(self, batch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds of one iteration of a job that asks for `batch`, accumulation included.

        Raises:
            ValueError: the placement, or the local batch it leads to, was not measured.
        """
        parts = self.limits.split(batch, sum(per_node))
        step, sync = self.step_times.at(per_node, parts.local_batch)
        return step + (step - sync) * parts.accumulation

    def iterations(self, batch: int, epoch: int) -> float:
        """Return the iterations at this batch size up to the end of an epoch (from 0)."""
        return self._at(batch, epoch, lambda row: row.iteration)

    def gain(self, batch: int, epoch: int) -> float:
        """Return the progress of one iteration; `batch` is what a split came out with."""
        signal = self._at(batch, epoch, lambda row: row.signal)
        noise = self._at(batch, epoch, lambda row: row.noise)
        return (noise + signal) / (noise / (batch / self.limits.initial) + signal)

    def epochs_s(self, batch: int, per_node: tuple[int, ...]) -> tuple[float, ...]:
        """Return the seconds of every epoch of a job that asks for `batch`, were it run whole on this placement."""
        key = (batch, per_node)
        if (seconds := self._epochs_s.get(key)) is None:
            iteration_s = self.iteration_s(batch, per_node)
            iterations = self._iterations(self.limits.split(batch, sum(per_node)).batch)
            seconds = self._epochs_s[key] = tuple(iteration_s * count for count in iterations)
        return seconds

    def _iterations(self, spread: int) -> tuple[float, ...]:
        """Return the iterations that every epoch takes at a batch that a split came out with."""
        if (counts := self._iteration_counts.get(spread)) is None:
            work = (end - begin for begin, end in itertools.pairwise((0.0, *self.goals)))
            counts = tuple(progress / self.gain(spread, epoch) for epoch, progress in enumerate(work))
            self._iteration_counts[spread] = counts
        return counts

    def _at(self, batch: int, epoch: int, column: Callable[[Epoch], float]) -> float:
        if batch in self.validation:
            return column(self.validation[batch][epoch])
        for low, high in itertools.pairwise(self.validation):
            if low < batch < high:
                below, above = column(self.validation[low][epoch]), column(self.validation[high][epoch])
                return ((batch - low) * above + (high - batch) * below) / (high - low)
        raise ValueError(
            f"{self.name} was measured with batches of {self.limits.initial} to {self.limits.largest}, got {batch}"
        )


class PolluxProfile(Struct, frozen=True, kw_only=True):
    application: Application
    batch: int
    costs: Costs = RESTART

    @property
    def epochs(self) -> int:
        return self.application.epochs

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds of one epoch; a node of more than four GPUs counts as several of four."""
        return self.application.epochs_s(self.batch, _measured(per_node))[epoch]

    def samples_per_s(self, per_node: tuple[int, ...]) -> float:
        batch = self.application.limits.split(self.batch, sum(per_node)).batch
        return batch / self.application.iteration_s(self.batch, _measured(per_node))


@functools.lru_cache(maxsize=2 * len(EPOCHS))
def load_application(name: str, traces: Path) -> Application:
    """Read one of `EPOCHS` from its folder below `traces`, once per process."""
    folder = traces / name
    # Beside the folder of the data set, where it was derived; a clone of the repository has none.
    table = load_interpolated(traces.parent.parent / "pollux-nd-times.csv")
    step_times = load_step_times(folder, table.get(name))
    sizes = sorted(int(path.stem.removeprefix("validation-")) for path in folder.glob("validation-*.csv"))
    smallest, largest = step_times.local_batches
    limits = BatchLimits(
        initial=sizes[0],
        largest=sizes[-1],
        local_smallest=smallest,
        local_largest=_LARGEST_LOCAL_BATCH.get(name, largest),
    )
    validation = {size: _epochs(folder / f"validation-{size}.csv") for size in sizes}
    return Application(name=name, limits=limits, step_times=step_times, validation=validation)


def _epochs(path: Path) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(float(row["progress"]), int(float(row["iteration"])), float(row["grad_sqr"]), float(row["grad_var"]))
        for row in read_rows(path)
    )


def _measured(per_node: tuple[int, ...]) -> tuple[int, ...]:
    if max(per_node) <= GPUS_PER_NODE:
        return per_node
    return tuple(part for replicas in per_node for part in _in_fours(replicas))


def _in_fours(replicas: int) -> Iterator[int]:
    while replicas > 0:
        yield min(replicas, GPUS_PER_NODE)
        replicas -= GPUS_PER_NODE
