"""Workers that their kubelet evicts as they use more local storage than their own limits allow: by their own fault."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.e2e.kubernetes.user_kinds import JOB, JOBSET, UserKind, kind_world
from tests.kube.client import PODS, Object
from tests.kube.objects import a_pytorchjob, an_mpijob, an_mpijob_v1
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.world import PeeredWorld
from voda.events.types import ProgramFailed, WorkerExited
from voda.projections.jobs.record_text import explanation_text, last_failure_text

__all__ = ["kind_world"]

SENTENCE = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi"
LIMIT = 2
"""backoffLimit of the jobs."""
RIGID: Mapping[str, Any] = {"least": 2, "most": 2}


async def exceed(world: PeeredWorld, pod: str) -> None:
    """Evict a pod as its kubelet does that finds it over its limit of local storage."""
    status = {"phase": "Failed", "reason": "Evicted", "message": f"{SENTENCE}. "}
    await world.client.patch(PODS, (world.namespace, pod), {"status": status}, "status")


async def fill(it: Voda, world: PeeredWorld, name: str) -> int:
    """Let worker 0 of a job go beyond its limit each time that it runs, until the job has ended; return how often."""
    times, seen = 0, set[str]()

    async def is_over() -> bool:
        nonlocal times
        if it.phase(it.id(name)) == "Failed":
            return True
        for pod in await world.client.list(PODS, world.namespace):
            meta = pod["metadata"]
            is_first = any(mark in meta["name"] for mark in (f"{name}-worker-0", f"{name}-0-", f"{name}-node-0-0"))
            if is_first and pod["status"].get("phase") == "Running" and meta["uid"] not in seen:
                seen.add(meta["uid"])
                times += 1
                await exceed(world, meta["name"])
        return False

    await it.until(is_over)
    return times


@pytest.mark.parametrize("make", [a_pytorchjob, an_mpijob_v1], ids=["PyTorchJob", "MPIJob v1"])
async def test_worker_of_training_operator_beyond_its_limits_is_tried_again_until_its_job_has_failed(
    make: Callable[..., Object], world_v1: PeeredWorld, tmp_path: Path
) -> None:
    await check(world_v1, tmp_path, make("filler", world_v1.namespace, policy={"backoffLimit": LIMIT}, **RIGID))


async def test_pytorchjob_that_is_never_restarted_has_failed_at_once(world_v1: PeeredWorld, tmp_path: Path) -> None:
    await check(world_v1, tmp_path, a_pytorchjob("filler", world_v1.namespace, restart="Never", **RIGID), times=1)


async def test_worker_of_mpi_operator_beyond_its_limits_is_tried_again_until_its_job_has_failed(
    world: PeeredWorld, tmp_path: Path
) -> None:
    await check(world, tmp_path, an_mpijob("filler", world.namespace, policy={"backoffLimit": LIMIT}))


@pytest.mark.parametrize("kind", [JOB, JOBSET], ids=str)
async def test_replica_of_a_job_beyond_its_limits_is_tried_again_until_its_job_has_failed(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    limits = {"job" if kind is JOBSET else "spec": {"backoffLimit": LIMIT}}
    await check(kind_world, tmp_path, kind.make("filler", kind_world.namespace, 2, **limits))


async def check(world: PeeredWorld, log: Path, job: Object, *, times: int = LIMIT + 1) -> None:
    """Run a job whose worker 0 fills its storage each time; it is tried so often, ever more slowly, and has failed."""
    await world.add_node("gpu-1")
    async with voda(world, log) as it:
        await world.submit(job)
        assert await fill(it, world, "filler") == times
        record = it.record("filler")
        assert SENTENCE in f"{explanation_text(record)}; {last_failure_text(record)}"
        assert not [fact for fact in await it.facts(WorkerExited) if fact.cause == "evicted" and 0 in fact.workers]
        if times > 1:
            assert SENTENCE in last_failure_text(record)
            failed = [event.recorded_at for event in await it.events() if isinstance(event.data, ProgramFailed)]
            assert failed == sorted(failed)
            # The clock of the API server counts whole seconds.
            assert failed[-1] - failed[0] >= 0.5
