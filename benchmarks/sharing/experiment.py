"""One run: pods arrive and stay, those that fit nowhere are dropped; what is handed out, what is left in fragments?

Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 6: tasks worth 130 % of the GPUs arrive. Figures are
taken at loads: the GPUs that arrived pods ask for, in percent of all. Rule: the figure at a load is the mean over all
arrivals after which the load rounds to it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from benchmarks.sharing.openb import OpenbList
from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.fragmentation import Fragmentation
from voda.sharing.rating.nodes import Floats
from voda.sharing.rating.placement import PodPlacer
from voda.sharing.rating.pod import PodPlacement
from voda.sharing.rating.raters import Rater, RatingContext

OnArrival = Callable[[int, PodPlacement | None], None]
"""Takes how many pods have arrived, and where the last of them is; None = it was dropped."""


class LoadPoint(Struct, frozen=True, kw_only=True):
    """Figures at one load, in percent of all GPUs."""

    load: int
    unallocated: float
    fragment: float
    """Expected: what a typical pod could not use of what is free."""


class SharingRun(Struct, frozen=True, kw_only=True):
    """What one rater made of one order of one list."""

    workload: str
    rater: str
    seed: int
    points: Sequence[LoadPoint]
    placed: int
    dropped: int
    seconds: float = 0.0
    """Computing time."""

    def at(self, load: int) -> LoadPoint:
        """Return the figures at a load; of one that was never reached, those of the last one before."""
        return next(point for point in reversed(self.points) if point.load <= load)


def simulate(
    workload: OpenbList, rater: Rater, seed: int, *, until: float = np.inf, on_arrival: OnArrival | None = None
) -> SharingRun:
    """Run one order of a list under a rater, up to a load in percent."""
    arrivals = workload.arrivals(seed)
    fleet = Fleet(arrivals.nodes)
    demand = Demand(workload.pods, fleet.hardware)
    placer = PodPlacer(fleet, rater, RatingContext(demand=demand))
    series = _Series(fleet, demand.fragmentation)
    for number, place in enumerate(arrivals.pods):
        placement = placer.place(workload.pods[place], f"pod-{number}")
        series.add(workload.pods[place].total_milli, placement)
        if on_arrival is not None:
            on_arrival(number + 1, placement)
        if series.loads[-1] >= until:
            break
    return SharingRun(
        workload=f"openb/{workload.name}",
        rater=rater.name,
        seed=seed,
        points=series.points(),
        placed=series.placed,
        dropped=len(series.loads) - series.placed,
    )


class _Series:
    """Load, allocated share and fragment after each arrival."""

    def __init__(self, fleet: Fleet, fragmentation: Fragmentation) -> None:
        self._fleet = fleet
        self._fragmentation = fragmentation
        self._fragments = fragmentation.of(fleet.rows())
        self._arrived = self._allocated = self.placed = 0
        self.loads: list[float] = []
        self._shares: list[tuple[float, float]] = []

    def add(self, asked_milli: int, placement: PodPlacement | None) -> None:
        """Record an arrival, once it is placed or dropped."""
        self._arrived += asked_milli
        if placement is not None:
            self.placed += 1
            self._allocated += asked_milli
            row = np.array([self._fleet.row_of[placement.node]])
            self._fragments[row] = self._fragmentation.of(self._fleet.rows(row))
        percent = 100.0 / (int(self._fleet.hardware.device_counts.sum()) * MILLI_PER_DEVICE)
        self.loads.append(self._arrived * percent)
        # Published figures are means of allocated shares that were rounded first.
        self._shares.append((round(self._allocated * percent, 2), float(self._fragments.sum()) * percent))

    def points(self) -> Sequence[LoadPoint]:
        """Return the mean at each whole load."""
        loads = np.rint(np.array(self.loads)).astype(np.int64)
        shares: Floats = np.array(self._shares)
        return [
            LoadPoint(load=load, unallocated=100.0 - allocated, fragment=fragment)
            for load in np.unique(loads).tolist()
            for allocated, fragment in [shares[loads == load].mean(axis=0).tolist()]
        ]
