"""Clusters and worlds for the tests of this folder."""

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

__all__ = [
    "cluster",
    "cluster_v1",
    "clusters",
    "jobs_cluster",
    "jobs_world",
    "jobsets_world",
    "pytest_collection_modifyitems",
    "trainjobs_cluster",
    "world",
    "world_v1",
]
