"""FGD: where GPUs that typical pods cannot use grow the least.

Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX
ATC 2023, section 4.3. A score is a whole number from 0 to 100, as in the authors' simulator: equal ones are many, and
then the first node wins, which keeps the later ones whole.
"""

from typing import ClassVar

import numpy as np

from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.nodes import Bools, Floats, NodeArrays
from voda.sharing.rating.raters import ContainerChoice, RatingContext
from voda.sharing.rating.toolkit import best_devices, different_devices, first_devices


class FragmentationGradientDescent:
    name: ClassVar[str] = "fgd"
    title: ClassVar[str] = "Where GPUs that typical pods cannot use grow the least (FGD, ATC'23)"
    heeds_uid: ClassVar[bool] = False

    def pick(self, choice: ContainerChoice) -> Bools:
        if choice.container.devices:
            return first_devices(choice.fitting, choice.container.count)
        fragmentation = choice.context.demand.fragmentation
        rows, devices = np.nonzero(different_devices(choice.nodes, choice.fitting))
        after = fragmentation.with_share(choice.nodes, rows, devices, choice.container.milli)
        scores = np.full(choice.fitting.shape, -np.inf)
        scores[rows, devices] = _whole_score(fragmentation.of(choice.before)[rows] - after)
        return best_devices(scores, choice.fitting, 1)

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        fragmentation = context.demand.fragmentation
        return _whole_score(fragmentation.of(before) - fragmentation.of(after))


def _whole_score(gain: Floats) -> Floats:
    """Return the score of so many milli less of fragment."""
    return np.trunc(100.0 / (1.0 + np.exp(-gain / MILLI_PER_DEVICE)))
