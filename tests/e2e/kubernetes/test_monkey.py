"""A random user with random faults on a real cluster with all operators: whatever happens, the cluster comes right.

GPUs are counted with the first seed, and devices that jobs claim with the second one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.peers.cluster import PeeredCluster, cluster_of_all_kinds
from tests.monkey.run import running
from tests.monkey.steps import SEEDS


@pytest.fixture(scope="module")
def full_cluster() -> Iterator[PeeredCluster]:
    """A control plane with kwok and the operators of all kinds."""
    with cluster_of_all_kinds() as made:
        yield made


@pytest.mark.timeout(1_000)
@pytest.mark.parametrize(("seed", "has_claims"), [*zip(SEEDS, (False, True), strict=True)])
async def test_cluster_when_anything_happens_comes_right(
    full_cluster: PeeredCluster, tmp_path: Path, seed: int, has_claims: bool
) -> None:
    async with running(full_cluster, tmp_path, seed, has_claims=has_claims) as run:
        await run.go(60)
