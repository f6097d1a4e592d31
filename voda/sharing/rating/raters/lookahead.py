"""Look-ahead: FGD's descent on a loss that fills nodes with the pods to come, and that spares scarce models.

Beyond FGD (Weng et al., USENIX ATC 2023): memory counts, so do all kinds of pods, and what they leave on a full node
(`stranding`); compute of a model costs as much as pods press on it; equal scores keep devices whole
together. Gains that differ by little are equal, as they are by FGD's whole scores: finer ones follow chance.
docs/adr/0027-look-ahead.md has what each part brings.
"""

from typing import ClassVar, Final

import numpy as np

from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices, different_devices, first_devices

_TOLERANCE_MILLI: Final = 60.0
"""Gains that differ by less are equal."""
_PRICE: Final = 0.4
"""Of a milli of a model under the pressure 1, in milli of loss."""


class LookAhead:
    name: ClassVar[str] = "lookahead"
    title: ClassVar[str] = "Where pods to come lose the least of what is left, scarce models spared"
    heeds_uid: ClassVar[bool] = False
    tolerance: ClassVar[float] = _TOLERANCE_MILLI

    def pick(self, choice: ContainerChoice) -> Bools:
        if choice.container.devices:
            return first_devices(choice.fitting, choice.container.count)
        nodes, milli = choice.nodes, choice.container.milli
        rows, devices = np.nonzero(different_devices(nodes, choice.fitting))
        loss = choice.context.demand.stranding.with_share(nodes, rows, devices, milli)
        before = choice.context.demand.stranding.of(choice.before)[rows]
        whole = nodes.whole.sum(axis=1)[rows] - nodes.whole[rows, devices]
        gains, kept = (np.full(choice.fitting.shape, -np.inf) for _ in range(2))
        gains[rows, devices], kept[rows, devices] = before - loss, whole
        equal = gains >= gains.max(axis=1, keepdims=True, initial=-np.inf) - _TOLERANCE_MILLI
        return best_devices(np.where(equal, kept, -np.inf), choice.fitting, 1)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        stranding = context.demand.stranding
        taken = before.milli.sum(axis=1) - after.milli.sum(axis=1)
        price = _PRICE * stranding.pressure[before.model] * taken
        return np.asarray(stranding.of(before) - stranding.of(after) - price)

    def tie(self, before: NodeArrays, after: NodeArrays) -> Floats:
        free = after.milli.sum(axis=1)
        # A pod without devices goes where the fewest of them are free.
        tie = np.where(before.milli.sum(axis=1) > free, after.whole.sum(axis=1), -free)
        return np.asarray(tie, dtype=np.float64)
