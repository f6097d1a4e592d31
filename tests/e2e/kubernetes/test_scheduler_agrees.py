"""Plans put workers where the real kube-scheduler binds them, and disturb nobody for a job that it binds nowhere.

By hand, of 1,000 clusters: `python -m benchmarks.kube fit`.
"""

import shutil

from tests.kube.client import Client
from tests.kube.control_plane import running
from tests.kube.fit_oracle import asked

_CLUSTERS = 30
_NAMESPACE = "drawn"


async def test_workers_of_plans_of_drawn_clusters_are_bound_where_they_are_planned() -> None:
    plane = running(controllers=False, scheduler=True)
    try:
        plane.create_namespace(_NAMESPACE)
        async with Client(plane) as client:
            verdict = await asked(client, range(_CLUSTERS), _NAMESPACE)
    finally:
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
    assert verdict.planned > 100
    assert verdict.impossible > 5
    assert verdict.refused == []
    assert verdict.disturbed == []
