"""All containers of a pod on every node at once: large requests first, each by the rater's choice.

Rule: no search. Where that order leaves a container without a device, the node is tried once more, each share on the
tightest device that fits; a node on which this fails too does not take the pod.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from voda.domain.gpus import GpuRequest
from voda.sharing.rating.nodes import Bools, Floats, Ints, NodeArrays
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.raters import ContainerChoice, Rater, RatingContext, breaks_ties
from voda.sharing.rating.toolkit import first_devices, tightest

Pick = Callable[[ContainerChoice], Bools]


@dataclass(frozen=True, slots=True)
class RatedNodes:
    """What a pod would get on each of n nodes."""

    scores: Floats
    """(n,): -inf where the pod does not fit."""
    ties: Floats
    """(n,): of nodes with equal scores the highest wins."""
    picked: Bools
    """(containers, n, d)."""


def rate(nodes: NodeArrays, pod: PodRequest, rater: Rater, context: RatingContext) -> RatedNodes:
    """Return a score and the devices of each container for every node."""
    open_ = (nodes.cpu >= pod.cpu_milli) & (nodes.memory >= pod.memory_mib)
    if order := _largest_first(pod.containers):
        first = pod.containers[order[0]]
        open_ &= nodes.fitting(first).sum(axis=1) >= first.count
    if pod.models:
        open_ &= nodes.hardware.allowed(pod.models)[nodes.model]
    scores, ties = np.full(len(nodes.index), -np.inf), np.zeros(len(nodes.index))
    picked = np.zeros((len(pod.containers), len(nodes.index), nodes.width), dtype=bool)
    rows = np.flatnonzero(open_)
    for pick in (rater.pick, _tightest) if len(rows) else ():
        before = NodeArrays(nodes.hardware, nodes.index[rows], nodes.free[rows])
        after, devices, fits = _fill(before, pod, pick, context)
        if fits.any():
            taken = np.flatnonzero(fits)
            without, with_pod = _only(before, taken), _only(after, taken)
            scores[rows[taken]] = rater.score(without, with_pod, context)
            if breaks_ties(rater):
                ties[rows[taken]] = rater.tie(without, with_pod)
            picked[:, rows[taken]] = devices[:, taken]
        rows = rows[~fits]
        if len(pod.containers) < 2 or not len(rows):
            break
    return RatedNodes(scores, ties, picked)


def _fill(before: NodeArrays, pod: PodRequest, pick: Pick, context: RatingContext) -> tuple[NodeArrays, Bools, Bools]:
    """Return the nodes with the pod, its devices, shape (containers, n, d), and where all containers fit."""
    picked = np.zeros((len(pod.containers), len(before.index), before.width), dtype=bool)
    fits = np.ones(len(before.index), dtype=bool)
    after = before.take_own(pod)
    for place in _largest_first(pod.containers):
        container = pod.containers[place]
        fitting = after.fitting(container)
        fits &= fitting.sum(axis=1) >= container.count
        choice = ContainerChoice(container=container, before=before, nodes=after, fitting=fitting, context=context)
        picked[place] = pick(choice) & fits[:, None]
        after = after.take(container, picked[place])
    return after, picked, fits


def _largest_first(containers: Sequence[GpuRequest]) -> Sequence[int]:
    """Return the places of the containers that need devices; equal ones in the pod's order."""
    wanting = [place for place, container in enumerate(containers) if container.count]
    return sorted(wanting, key=lambda at: (-containers[at].devices, -containers[at].milli, -containers[at].memory_mib))


def _tightest(choice: ContainerChoice) -> Bools:
    if choice.container.devices:
        return first_devices(choice.fitting, choice.container.count)
    return tightest(choice.nodes, choice.fitting)


def _only(nodes: NodeArrays, rows: Ints) -> NodeArrays:
    if len(rows) == len(nodes.index):
        return nodes
    return NodeArrays(nodes.hardware, nodes.index[rows], nodes.free[rows])
