"""Chooses nodes and GPUs for pods by the accounts of shares, as the log has them.

The arrays that raters read follow the accounts: a node is read again only where its account has changed. CPU and memory
of nodes count as endless: whoever asks has looked at them. Rule: the choice follows from accounts, rater, request, uid.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from voda.changed_keys import ChangedKeys
from voda.domain.gpus import ContainerGpus, GpuDevice
from voda.domain.shares import GpuRemainder, SharingNode
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.joint import RatedNodes, rate
from voda.sharing.rating.nodes import Bools, Floats, GpuNode, Ints, NodeArrays
from voda.sharing.rating.placement import PodPlacer
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.raters import Rater, RatingContext, breaks_ties

HIGHEST: Final = 10
"""How much the best node is preferred; the worst one 0."""
_ENDLESS: Final = 10**9
_FEWEST_CHANGES: Final = 100
"""What is expected of the next pods is worked out anew after so many changes of nodes, or a tenth of the pods."""
_NO_GPUS: Final = "the node has no GPUs to share"


class GpuRefusal(Struct, frozen=True):
    """Why a pod does not fit on a node."""

    reason: str
    is_final: bool
    """Whether it would not fit either if nobody used the node's GPUs."""


class NodeChoice(NamedTuple):
    """Where a pod fits, of the nodes that were asked about."""

    wanted: Mapping[str, int]
    """How much each node is preferred, 0 to 10, 10 of the best alone; in the order of the question."""
    unfit: Sequence[str]
    """The nodes where it does not fit."""


class GpuChooser:
    """Follows the accounts of nodes, and rates nodes for pods by them."""

    def __init__(self, rater: Rater) -> None:
        self._rater = rater
        self._tolerance = rater.tolerance if breaks_ties(rater) else 0.0
        self._names: list[str] = []
        self._devices: list[tuple[GpuDevice, ...]] = []
        self._versions: list[int] = []
        """Of the accounts, as they were read; -1 = not read yet."""
        self._fleet = self._empty = Fleet(())
        self._context = RatingContext(demand=Demand((), self._fleet.hardware))
        self._placer = PodPlacer(self._fleet, rater, self._context)
        self._unused = self._placer
        """Rates the nodes as if nobody used them."""
        self._changes_left = 0
        self._changes: ChangedKeys | None = None
        self._seen = 0
        """Of `_changes`, so many are read."""
        self._answered: object = None
        """What was asked last: pod, uid, placer and state of the nodes."""
        self._answer: tuple[Sequence[str], Mapping[str, int]] = ((), {})
        """The nodes where it fits, and how much each is preferred."""

    def follow(self, accounts: Mapping[str, SharingNode], pod: PodRequest, changes: ChangedKeys | None = None) -> None:
        """Read what changed in the accounts; before any question about them. `pod` is about to be asked for.

        Without `changes`, whose keys are the names of accounts, all of them are compared.
        """
        changed = changes.since(self._seen) if changes is not None and changes is self._changes else None
        self._changes, self._seen = changes, 0 if changes is None else changes.count
        if changed is None or any(self._is_another(name, accounts.get(name)) for name in changed):
            names, devices = list(accounts), [each.devices for each in accounts.values()]
            if names != self._names or devices != self._devices:
                self._begin(names, devices)
            changed = names
        for name in changed:
            if (account := accounts.get(name)) is not None:
                self._read(name, account)
        if self._changes_left <= 0:
            self._expect(accounts, pod)

    def preferences(self, names: Sequence[str], pod: PodRequest, uid: str) -> Mapping[str, int]:
        """Return how much each node is preferred, 0 to 10, 10 of the best alone; where it does not fit it has none."""
        return self.choice(names, pod, uid).wanted

    def choice(self, names: Sequence[str], pod: PodRequest, uid: str, *, most: int = 0) -> NodeChoice:
        """Return where the pod fits: of more nodes than `most` the best ones alone; 0 = all."""
        # kube-scheduler asks twice: of all nodes, and then, for their scores, of those that were the answer.
        is_same = self._answered == self._state(pod, uid) and names == self._answer[0]
        if is_same and (not most or len(names) <= most):
            return NodeChoice(self._answer[1], ())
        rated, asked = self._placer.rated(pod, uid), self._rows(names)
        fits = (asked >= 0) & (rated.scores[asked] > -np.inf) if len(self._names) else asked >= 0
        places = np.flatnonzero(fits)
        wanted = self._scaled(names, places, asked[places], rated, most) if len(places) else {}
        unfit = () if len(places) == len(names) else [names[place] for place in np.flatnonzero(~fits).tolist()]
        self._answered, self._answer = self._state(pod, uid), (tuple(wanted), wanted)
        return NodeChoice(wanted, unfit)

    def _scaled(
        self, names: Sequence[str], places: Ints, rows: Ints, rated: RatedNodes, most: int
    ) -> Mapping[str, int]:
        """Return the preferences of the best nodes, given the places in `names` and the rows of those that fit."""
        best = self._best(rows, rated)
        if most and len(places) > most:
            # The first ones among equal nodes; where a tie decided, the best one may not be among the highest.
            kept = np.lexsort((rows, -rated.scores[rows]))[:most]
            kept = np.sort(kept if best in kept else np.append(kept[:-1], best))
            best, places, rows = int(np.flatnonzero(kept == best)[0]), places[kept], rows[kept]
        scores = rated.scores[rows]
        lowest, highest = scores.min(), scores.max()
        steps = np.floor((HIGHEST - 1) * (scores - lowest) / max(highest - lowest, 1e-9))
        wanted = np.where(self._equal(scores), HIGHEST - 1, steps).astype(int)
        wanted[best] = HIGHEST
        return dict(zip([names[place] for place in places.tolist()], wanted.tolist(), strict=True))

    def _best(self, rows: Ints, rated: RatedNodes) -> int:
        """Return the place of the best of some rows: as everywhere, the first of equal nodes wins."""
        ties = rated.ties[rows]
        equal = self._equal(rated.scores[rows])
        best = np.flatnonzero(equal & (ties >= ties[equal].max()))
        return int(best[rows[best].argmin()])

    def _equal(self, scores: Floats) -> Bools:
        """Return which scores are as good as the highest."""
        return np.asarray(scores >= scores.max() - self._tolerance)

    def _rows(self, names: Sequence[str]) -> Ints:
        """Return the rows of nodes, -1 of those that are not known."""
        row_of = self._fleet.row_of
        try:
            return np.fromiter(map(row_of.__getitem__, names), dtype=np.int64, count=len(names))
        except KeyError:
            return np.array([row_of.get(name, -1) for name in names], dtype=np.int64)

    def _state(self, pod: PodRequest, uid: str) -> object:
        """Return what an answer depends on, besides the nodes that were asked about."""
        return pod, uid, self._placer, self._fleet.changes

    def refusals(self, names: Sequence[str], pod: PodRequest, asked: str) -> Sequence[tuple[GpuRefusal, Sequence[str]]]:
        """Return why a pod does not fit on nodes that `preferences` left out, and where it is this reason.

        `asked` is what the pod asks for, in words. Reasons are in the order of the nodes.
        """
        none = GpuRefusal(_NO_GPUS, is_final=True)
        final = GpuRefusal(f"the node's GPUs are too few or too small for {asked}", is_final=True)
        full = GpuRefusal(f"too little is left of the node's GPUs for {asked}", is_final=False)
        rows, counts = self._rows(names), self._fleet.hardware.device_counts
        if not len(counts):
            return [(none, names)] if names else []
        could = self._unused.rated(pod).scores[rows] > -np.inf
        lacks = (rows < 0) | (counts[rows] == 0)
        found = ((none, lacks), (full, ~lacks & could), (final, ~lacks & ~could))
        first = sorted((each for each in found if each[1].any()), key=lambda each: int(each[1].argmax()))
        return [(refusal, list(compress(names, where.tolist()))) for refusal, where in first]

    def gpus(self, node: str, pod: PodRequest, uid: str) -> Sequence[tuple[int, ...]] | None:
        """Return the GPUs of each container on a node, empty of those that ask for none; None: it does not fit."""
        row, rated = self._fleet.row_of.get(node), self._placer.rated(pod, uid)
        if row is None or rated.scores[row] == -np.inf:
            return None
        return tuple(tuple(np.flatnonzero(each).tolist()) for each in rated.picked[:, row])

    def fits_with(self, node: str, free: Sequence[GpuRemainder], pod: PodRequest) -> bool:
        """Say whether a pod would fit on a node if so much of its GPUs were free."""
        if (row := self._fleet.row_of.get(node)) is None:
            return False
        rows = NodeArrays(self._fleet.hardware, np.array([row]), self._fleet.with_free(row, free)[None])
        rated: RatedNodes = rate(rows, pod, self._rater, self._context)
        return bool(rated.scores[0] > -np.inf)

    def _is_another(self, name: str, account: SharingNode | None) -> bool:
        """Say whether a node is there that was not, or the other way round, or has other GPUs."""
        row = self._fleet.row_of.get(name)
        if row is None or account is None:
            return row is not None or account is not None
        return account.devices != self._devices[row]

    def _read(self, name: str, account: SharingNode) -> None:
        row = self._fleet.row_of[name]
        if account.version != self._versions[row]:
            self._versions[row] = account.version
            self._fleet.put_free(name, account.free())
            self._changes_left -= 1

    def _begin(self, names: list[str], devices: list[tuple[GpuDevice, ...]]) -> None:
        nodes = [
            GpuNode(name=name, cpu_milli=_ENDLESS, memory_mib=_ENDLESS, devices=each)
            for name, each in zip(names, devices, strict=True)
        ]
        self._fleet, self._changes_left = Fleet(nodes), 0
        self._empty = self._fleet.emptied()
        self._names, self._devices, self._versions = names, devices, [-1] * len(names)

    def _expect(self, accounts: Mapping[str, SharingNode], pod: PodRequest) -> None:
        """Expect pods like those that have shares now; like this one where none has any."""
        held = [_request(each.containers) for account in accounts.values() for each in account.pods.values()]
        was_heeded = self._context.demand.is_measured
        self._context = RatingContext(demand=Demand(held or [pod], self._fleet.hardware))
        if was_heeded or self._placer.fleet is not self._fleet:
            self._placer = PodPlacer(self._fleet, self._rater, self._context)
            self._unused = PodPlacer(self._empty, self._rater, self._context)
        else:
            # This rater goes by what is free alone: its scores still hold.
            self._placer.context = self._unused.context = self._context
        self._changes_left = max(_FEWEST_CHANGES, len(held) // 10)


def _request(containers: Mapping[str, ContainerGpus]) -> PodRequest:
    return PodRequest(containers=tuple(share.request for share in containers.values()))
