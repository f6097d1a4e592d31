"""What to do instead of a command or option that voda had once: one sentence for each.

Rule: whoever still types it is told; it is in no help and in no completion.
"""

from collections.abc import Mapping
from typing import Final

FORMER: Final[Mapping[str, str]] = {
    "log archive": "`voda log trim LOG FOLDER --keep 90d` moves old events to a folder",
    "log backup": "`voda log copy LOG FOLDER` adds to a folder what it lacks",
    "log export": "`voda log copy LOG FOLDER` writes all events, as packed lines of JSON",
    "log import": "`voda log copy FOLDER LOG` makes a log from a folder",
    "log restore": "`voda log copy FOLDER LOG` makes a log from a folder",
    "serve --cluster": "`voda serve` is for Kubernetes, without this option; for this machine run `voda up`",
}
"""The words behind `voda` -> the sentence."""
