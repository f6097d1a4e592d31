"""What makes a workload harder to schedule: lengths that nobody knows or that vary, no categories, few sizes."""

import math
import random
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import InvalidInput
from voda.domain.sizes import JobSizes
from voda.simulator.workload import Arrival, Costs, MeasuresThroughput, Profile, Workload, at_sizes

POWERS_OF_TWO: Final = JobSizes.of(2**power for power in range(13))
MOST_SIGMA: Final = 3.0
_MOST_TIMES: Final = 20.0
"""And the least share: a length that was drawn is within it of the one in the workload."""


class Variation(Struct, frozen=True, kw_only=True):
    sigma: float = 0.0
    """Of the lognormal distribution of a job's epochs around those in the workload."""
    lengths_unknown: bool = False
    without_categories: bool = False
    powers_of_two: bool = False

    @property
    def name(self) -> str:
        """As part of the name of a family of workloads; empty: they are as they are."""
        parts = {
            f"sigma {self.sigma:g}": bool(self.sigma),
            "lengths unknown": self.lengths_unknown,
            "no categories": self.without_categories,
            "powers of two": self.powers_of_two,
        }
        return ", ".join(part for part, is_on in parts.items() if is_on)


class _Lengthened(Struct, frozen=True):
    """A profile of another number of epochs; those beyond its last one are like that."""

    profile: Profile
    epochs: int

    @property
    def costs(self) -> Costs:
        return self.profile.costs

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return self.profile.epoch_s(min(epoch, self.profile.epochs - 1), per_node)


class _LengthenedMeasured(_Lengthened, frozen=True):
    """The same of one that measures its throughput."""

    def samples_per_s(self, per_node: tuple[int, ...]) -> float:
        assert isinstance(self.profile, MeasuresThroughput)
        return self.profile.samples_per_s(per_node)


def varied(workload: Workload, variation: Variation, seed: int) -> Workload:
    """Return the workload, varied; lengths are drawn from the seed and the workload's name.

    Raises:
        InvalidInput: `sigma` is not from 0 to MOST_SIGMA.
    """
    if not 0 <= variation.sigma <= MOST_SIGMA:
        raise InvalidInput(f"sigma: expected a number from 0 to {MOST_SIGMA:g}, got {variation.sigma:g}")
    changes: list[Callable[[Arrival], Arrival]] = []
    if variation.sigma:
        draw = random.Random(f"{workload.name} {seed}")
        changes.append(lambda arrival: _drawn(arrival, draw.lognormvariate(0.0, variation.sigma)))
    if variation.lengths_unknown:
        changes.append(lambda arrival: replace(arrival, spec=replace(arrival.spec, epochs=0)))
    if variation.without_categories:
        changes.append(lambda arrival: replace(arrival, spec=replace(arrival.spec, category=arrival.spec.job_id)))
    arrivals = workload.arrivals
    for change in changes:
        arrivals = tuple(map(change, arrivals))
    workload = replace(workload, arrivals=arrivals)
    return at_sizes(workload, POWERS_OF_TWO) if variation.powers_of_two else workload


def _drawn(arrival: Arrival, times: float) -> Arrival:
    profile = arrival.profile
    epochs = max(1, math.ceil(profile.epochs * min(max(times, 1 / _MOST_TIMES), _MOST_TIMES) - 0.5))
    kind = _LengthenedMeasured if isinstance(profile, MeasuresThroughput) else _Lengthened
    spec = replace(arrival.spec, epochs=epochs if arrival.spec.epochs else 0)
    return replace(arrival, spec=spec, profile=kind(profile, epochs))
