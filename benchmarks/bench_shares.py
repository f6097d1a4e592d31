"""Pods that share GPUs, placed one after the other on the cluster of the openb trace."""

from collections.abc import Sequence
from time import process_time
from typing import Final

from benchmarks.sharing.openb import OpenbList, load_list
from benchmarks.table import Row
from voda.domain.errors import DataNotFound
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.placement import PodPlacer
from voda.sharing.rating.raters import RATERS, RatingContext

TITLE = "Place pods on shared GPUs: openb/default, 1,213 nodes, up to 130 % of 6,212 GPUs, one core"
_GOALS: Final = {"fgd": 5_000.0}
_ORIGINAL_PER_S: Final = 18.0
"""What FGD's authors' simulator places, by the figures of the specification it is described in."""
_SEED: Final = 42
_RUNS: Final = 3


def run() -> Sequence[Row]:
    """Return the pods per second of each rater: the best run of some, in processor time of this process."""
    try:
        workload = load_list("default")
    except DataNotFound:
        return []
    return [_row(name, max(_pods_per_s(workload, name) for _ in range(_RUNS))) for name in RATERS]


def _row(name: str, pods_per_s: float) -> Row:
    is_fgd = name == "fgd"
    return Row(
        what=name,
        figure=pods_per_s,
        unit="pods/s",
        goal=_GOALS.get(name),
        better="higher",
        yardstick=f"the authors' simulator, about {_ORIGINAL_PER_S:.0f} pods/s" if is_fgd else "",
        ratio=pods_per_s / _ORIGINAL_PER_S if is_fgd else None,
    )


def _pods_per_s(workload: OpenbList, name: str) -> float:
    arrivals = workload.arrivals(_SEED)
    fleet = Fleet(arrivals.nodes)
    placer = PodPlacer(fleet, RATERS[name], RatingContext(demand=Demand(workload.pods, fleet.hardware)))
    # The random rater rates every node for every pod, so a part of the list is enough.
    pods = arrivals.pods[:2_000] if RATERS[name].heeds_uid else arrivals.pods
    began = process_time()
    for number, place in enumerate(pods):
        placer.place(workload.pods[place], f"pod-{number}")
    return len(pods) / (process_time() - began)
