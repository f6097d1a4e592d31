"""Random: any node and device that fits, the same for the same pod: by a hash of its uid and the node's name."""

from typing import ClassVar, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices

_LARGEST: Final = float(2**64)


class RandomNode:
    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Any node and device that fits, drawn from the pod's uid"
    heeds_uid: ClassVar[bool] = True

    def pick(self, choice: ContainerChoice) -> Bools:
        nodes = choice.nodes
        # Containers of one pod draw differently: what is left differs.
        salt = (
            np.arange(nodes.width, dtype=np.uint64) + (nodes.milli.sum(axis=1) * nodes.width).astype(np.uint64)[:, None]
        )
        return best_devices(_drawn(nodes, choice.context.uid, salt), choice.fitting, choice.container.count)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        return _drawn(before, context.uid, np.full((len(before.index), 1), 2**32, dtype=np.uint64))[:, 0]


def _drawn(nodes: NodeArrays, uid: str, salt: NDArray[np.uint64]) -> Floats:
    """Return numbers in [0, 1), shape of the salt: SplitMix64 (Steele et al., OOPSLA 2014) of uid, node and salt."""
    pod = np.uint64(crc32(uid.encode()))
    mixed = nodes.hardware.name_hash[nodes.index][:, None] * np.uint64(2**32) + pod
    for step in (np.uint64(0), salt):
        mixed = mixed + step + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed / _LARGEST
