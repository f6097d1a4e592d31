"""The kinds whose pods Kubernetes' own Job controller makes: Jobs, and what JobSet and Trainer make Jobs of.

Rule: a test has its kind as parameter `kind`, and `kind_world` is a cluster with what that kind needs.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import pytest

from tests.kube import client as api
from tests.kube.client import Object, Resource
from tests.kube.objects import a_jobset, a_trainjob, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld


@dataclass(frozen=True)
class UserKind:
    """What tests ask of a kind: its objects, and by which name the Job of one goes."""

    name: str
    resource: Resource
    make: Callable[..., Object]
    suffix: str = "-node-0"

    def job_of(self, name: str) -> str:
        """Return the name of an object's Job."""
        return name + self.suffix

    def __str__(self) -> str:
        return self.name


JOB: Final = UserKind("Job", api.JOBS, an_indexed_job, suffix="")
JOBSET: Final = UserKind("JobSet", api.JOBSETS, a_jobset)
TRAINJOB: Final = UserKind("TrainJob", api.TRAINJOBS, a_trainjob)


@pytest.fixture
async def kind_world(kind: UserKind, request: pytest.FixtureRequest) -> AsyncIterator[JobsWorld]:
    """An empty cluster for a kind: without operators for Jobs, with JobSet and Trainer for the others."""
    cluster = request.getfixturevalue("jobs_cluster" if kind is JOB else "trainjobs_cluster")
    async with JobsWorld(cluster) as made:
        if kind is TRAINJOB:
            await made.add_runtime("torch")
        yield made
