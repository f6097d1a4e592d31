"""How many requests the API server answered, by verb and kind; watches are not counted.

Rule: reading the figures costs it some milliseconds, so they are read before and after what is measured, not during it.
"""

import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.table import Row
from tests.kube.control_plane import ControlPlane

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Requests:
    """What was answered from its making on."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._before = self._counts()

    def rows(self, jobs: int) -> Sequence[Row]:
        """Return the requests of each verb and kind per job; those of fewer than one in a hundred jobs are left out."""
        since = self._counts() - self._before
        shown = [(name, count) for name, count in since.most_common() if count >= jobs / 100]
        return [Row(what=f"requests: {name}, per job", figure=count / jobs, unit="") for name, count in shown]

    def _counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in _LINE.finditer(self._plane.get("/metrics").decode()):
            labels = dict(_LABEL.findall(line["labels"]))
            if labels["verb"] != "WATCH":
                found[f"{labels['verb']} {labels['resource']}"] += int(float(line["count"]))
        return found
