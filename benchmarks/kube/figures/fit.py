"""Whether plans put workers where the real kube-scheduler binds them, on clusters and for jobs drawn by chance."""

from collections.abc import Sequence

from benchmarks.kube.options import Options
from benchmarks.table import Row
from tests.kube.client import Client
from tests.kube.control_plane import running
from tests.kube.fit_oracle import Verdict, asked

TITLE = "workers where kube-scheduler binds them, 1,000 drawn clusters"
_CLUSTERS = 1_000
_AT_ONCE = 50
_NAMESPACE = "drawn"


async def run(options: Options) -> Sequence[Row]:
    """Return what kube-scheduler refuses of plans, and who was disturbed in vain."""
    count, verdict = options.scaled(_CLUSTERS), Verdict()
    plane = running(controllers=False, scheduler=True)
    try:
        plane.create_namespace(_NAMESPACE)
        async with Client(plane) as client:
            for first in range(0, count, _AT_ONCE):
                verdict.add(await asked(client, range(first, min(first + _AT_ONCE, count)), _NAMESPACE))
    finally:
        plane.stop()
    for words in (*verdict.refused, *verdict.disturbed):
        print(words[:300])
    return [
        Row(what="drawn clusters", figure=verdict.clusters, unit=""),
        Row(what="workers that plans put on nodes", figure=verdict.planned, unit=""),
        Row(what="of them, refused", figure=100 * len(verdict.refused) / max(1, verdict.planned), unit="%", goal=0.1),
        Row(what="newcomers that no node takes", figure=verdict.impossible, unit=""),
        Row(what="workers disturbed for these", figure=len(verdict.disturbed), unit="", goal=0),
    ]
