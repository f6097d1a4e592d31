"""What to do instead of a command or option that voda had once: one sentence for each.

Rule: whoever still types it is told; it is in no help and in no completion.
"""

from collections.abc import Mapping
from typing import Final

FORMER: Final[Mapping[str, str]] = {
    "serve --cluster": "`voda serve` is for Kubernetes, without this option; for this machine run `voda up`",
}
"""The words behind `voda` -> the sentence."""
