"""Clusters and worlds for the tests of this folder."""

import pytest

from tests.kube.fixtures import (
    cluster,
    cluster_v1,
    clusters,
    jobs_cluster,
    jobs_world,
    jobsets_world,
    pytest_collection_modifyitems,
    trainjobs_cluster,
    world,
    world_v1,
)
from tests.kube.parts_of_files import pytest_xdist_make_scheduler
from voda.log.sql.postgres import PostgresDatabase

__all__ = [
    "cluster",
    "cluster_v1",
    "clusters",
    "jobs_cluster",
    "jobs_world",
    "jobsets_world",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
    "trainjobs_cluster",
    "world",
    "world_v1",
]


@pytest.fixture
async def log(postgres_database: str) -> str:
    """An empty log that replicas share."""
    await PostgresDatabase.migrate(postgres_database)
    return postgres_database
