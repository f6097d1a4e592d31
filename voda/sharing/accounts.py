"""The accounts of shared cards as raters read nodes and pods, and the cards that shares get by them.

Rule: of CPU and of a node's own memory the accounts know nothing, so pods ask for none of them here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.shares import PodShares, SharingNode
from voda.sharing.demand import Demand
from voda.sharing.fleet import Fleet
from voda.sharing.joint import rate
from voda.sharing.kinds import largest_container
from voda.sharing.nodes import FIRST_DEVICE, Bools, GpuNode, Ints
from voda.sharing.pod import PodRequest
from voda.sharing.raters import RATERS, RatingContext

RATER: Final = "fgd"
"""By which jobs with a part of a card get it."""
_WHOLE: Final = PodRequest(containers=(GpuRequest(devices=Gpus(1)),))


class OpenCards:
    """What is left of cards, as one share after the other gets a part of one.

    Pods to come are expected to ask for the same as those that have some, and as often for a whole card, which elastic
    jobs use: so a share comes beside others rather than on a card that is whole.

    Args:
        accounts: node -> what its pods have, in the order in which equal nodes are chosen; they stay as they are.
        closed: node -> its cards that are not for shares now.
    """

    def __init__(
        self, accounts: Mapping[str, SharingNode], closed: Mapping[str, Collection[int]] | None = None
    ) -> None:
        self._names = list(accounts)
        self._fleet = fleet_of(accounts, closed)
        self._states = [row.tobytes() for row in self._fleet.free]
        """What is free on each node: of those where it is the same, the first one alone is rated."""
        self._whole = np.zeros(self._fleet.rows().milli.shape, dtype=bool)
        for row, account in enumerate(accounts.values()):
            self._whole[row, : len(account.devices)] = [left.is_whole for left in account.free()]
        self._shared = (self._fleet.hardware.total[:, FIRST_DEVICE : FIRST_DEVICE + self._width] > 0) & ~self._whole
        self._asked = {
            name: Counter(_kind(_request(pod)) for pod in account.pods.values()) for name, account in accounts.items()
        }
        """Node -> what its pods ask for, and how many do."""
        self._asked_of_all = sum(self._asked.values(), Counter[PodRequest]())

    def choose(self, request: GpuRequest, refused: Collection[str] = ()) -> tuple[str, int] | None:
        """Return the node, none of those refused, and the card where a share comes best; None: none has so much."""
        pod = PodRequest(containers=(request,))
        rows = self._rows(refused)
        nodes, context = self._fleet.rows(rows), RatingContext(demand=self._demand(pod, refused))
        rated = rate(nodes, pod, RATERS[RATER], context)
        if rated.scores.max(initial=-np.inf) == -np.inf:
            return None
        best = int(rated.scores.argmax())
        return self._names[rows[best]], int(rated.picked[0, best].argmax())

    def give(self, name: str, card: int, request: GpuRequest) -> bool:
        """Take a share from what is left, and return whether the card was whole."""
        row, pod = self._fleet.row_of[name], _kind(PodRequest(containers=(request,)))
        was_whole = bool(self._whole[row, card])
        self._whole[row, card], self._shared[row, card] = False, True
        self._fleet.free[row, FIRST_DEVICE + card] -= request.milli
        self._fleet.free[row, FIRST_DEVICE + self._width + card] -= request.memory_mib
        self._states[row] = self._fleet.free[row].tobytes()
        self._asked[name][pod] += 1
        self._asked_of_all[pod] += 1
        return was_whole

    def close_whole(self, name: str) -> None:
        """Let no more shares come to whole cards of a node."""
        row = self._fleet.row_of[name]
        self._close(self._fleet.free[row : row + 1], self._whole[row : row + 1])
        self._states[row] = self._fleet.free[row].tobytes()

    def most_left(self) -> tuple[int, int] | None:
        """Return the milli and MiB of the emptiest card of which somebody has a part; None: there is none."""
        if not self._shared.any():
            return None
        nodes = self._fleet.rows()
        milli, memory_mib = nodes.milli[self._shared], nodes.device_memory[self._shared]
        return int(milli.max()), int(memory_mib[milli == milli.max()].max())

    @property
    def _width(self) -> int:
        return int(self._fleet.hardware.device_memory.shape[1])

    @staticmethod
    def _close(free: Ints, cards: Bools) -> None:
        free[:, FIRST_DEVICE:][np.tile(cards, 2)] = 0

    def _rows(self, refused: Collection[str]) -> Ints:
        """Return the rows of nodes not refused; of those in the same state, the first alone."""
        rows = range(len(self._names) - 1, -1, -1)
        those = [row for row in rows if self._names[row] not in refused] if refused else rows
        first = {self._states[row]: row for row in those}
        return np.array(sorted(first.values()), dtype=np.int64)

    def _demand(self, pod: PodRequest, refused: Collection[str]) -> Demand:
        asked = self._asked_of_all + Counter([_kind(pod)])
        for name in refused:
            asked -= self._asked.get(name, Counter())
        asked[_WHOLE] += asked.total()
        return Demand(asked, self._fleet.hardware)


def fleet_of(accounts: Mapping[str, SharingNode], closed: Mapping[str, Collection[int]] | None = None) -> Fleet:
    """Return what is free of the cards of these nodes, in their order; nothing of those that are closed."""
    nodes = [
        GpuNode(name=name, cpu_milli=0, memory_mib=0, devices=account.devices) for name, account in accounts.items()
    ]
    fleet = Fleet(nodes)
    width = fleet.hardware.device_memory.shape[1]
    for row, (name, account) in enumerate(accounts.items()):
        shut = (closed or {}).get(name, ())
        for card, left in enumerate(account.free()):
            fleet.free[row, FIRST_DEVICE + card] = 0 if card in shut else left.milli
            fleet.free[row, FIRST_DEVICE + width + card] = 0 if card in shut else max(0, left.memory_mib)
    return fleet


def requests_in(accounts: Iterable[SharingNode]) -> Counter[PodRequest]:
    """Return what the pods that have cards of these nodes asked for, and how many asked for the same."""
    return Counter(_request(pod) for account in accounts for pod in account.pods.values())


def _request(pod: PodShares) -> PodRequest:
    return PodRequest(containers=tuple(share.request for share in pod.containers.values()))


def _kind(pod: PodRequest) -> PodRequest:
    """Return the pod as FGD reads it: with its largest container alone, and of memory, whether it asks for any."""
    largest = largest_container(pod) or GpuRequest()
    return PodRequest(containers=(replace(largest, memory_mib=min(1, largest.memory_mib)),))
