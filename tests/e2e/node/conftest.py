"""One cluster of real nodes, with voda on it, for all tests of this folder."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kube.assets import ROOT
from tests.kube.node.cluster import needed, node_cluster
from tests.kube.node.installation import IMAGE, TRAIN_IMAGE, Installation, image


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    needed()
    with ThreadPoolExecutor() as pool:
        voda = pool.submit(image, ROOT / "deploy" / "Dockerfile", IMAGE)
        train = pool.submit(image, ROOT / "tests" / "kube" / "node" / "train.Dockerfile", TRAIN_IMAGE)
        with node_cluster() as cluster:
            for archive in (train.result(), voda.result()):
                cluster.load(archive)
            installed = Installation(cluster, cluster.folder / "home")
            installed.install()
            yield installed
