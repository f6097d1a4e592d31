"""What a pool makes of a job that is submitted: what has no effect there, and for what the job has to wait."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import Log, a_node
from tests.manifests import a_torch_job
from voda.application.job_rules import pool_warnings
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.domain.gpus import NO_GPUS, GpuDevice, GpuRequest
from voda.events.types import NodeJoined
from voda.manifests.parse import parse
from voda.projections.cluster.live_cluster import LiveCluster

_MEMORY = "elasticgpu.io/gpu-memory"
_CONTAINER = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"


def told(manifest: dict[str, Any], share: GpuRequest | None = None) -> list[tuple[str, str]]:
    """Return the warnings of a pool of two GPUs of 16,000 MiB, of a job that gets a part of one, or whole ones."""
    cluster = LiveCluster()
    devices = (GpuDevice(memory_mib=16_000),) * 2
    cluster.apply(Log().add(NodeJoined(node=a_node("n1", gpus=2, devices=devices)), at=0.0))
    parsed = parse(manifest)
    if share is not None:
        parsed = replace(parsed, spec=replace(parsed.spec, share=share, gpus_per_replica=NO_GPUS))
    return [(each.field, each.message) for each in pool_warnings(cluster, parsed, quota_shortage)]


@pytest.mark.parametrize(("grace_s", "is_told"), [(600, False), (1_000_000_000, True)])
def test_grace_of_more_than_the_pool_gives_is_told_that_it_does_not_count(grace_s: int, is_told: bool) -> None:
    manifest = a_torch_job()
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = grace_s
    field = "spec.pytorchReplicaSpecs.Worker.template.spec.terminationGracePeriodSeconds"
    message = "it is killed 600 s after it is told to end, the pool's most"
    assert told(manifest) == ([(field, message)] if is_told else [])


@pytest.mark.parametrize(("memory_mib", "is_told"), [(16_000, False), (16_001, True), (0, False)])
def test_share_of_more_memory_than_any_gpu_has_is_told_that_it_waits_for_a_larger_gpu(
    memory_mib: int, is_told: bool
) -> None:
    limits = {"elasticgpu.io/gpu-core": 10, _MEMORY: memory_mib}
    manifest = a_torch_job(container={"resources": {"limits": limits}})
    message = (
        "it waits until a larger GPU joins pool default: no GPU of the pool has 16,001 MiB: the largest has 16,000 MiB"
    )
    expected = [(f"{_CONTAINER}.resources.limits[{_MEMORY}]", message)] if is_told else []
    assert told(manifest, GpuRequest(milli=100, memory_mib=memory_mib)) == expected
