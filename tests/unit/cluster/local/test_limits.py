"""How much memory and CPU a replica may have, from its manifest."""

from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.cluster.local.isolation.limits import Limits, launcher_limits, role_limits
from voda.domain.errors import InvalidField
from voda.manifests.conversion import typed_manifest


def resources(**limits: Any) -> dict[str, Any]:
    return {"resources": {"limits": limits}}


def test_limits_of_a_role_are_those_of_its_main_container() -> None:
    job = typed_manifest(a_torch_job(container=resources(memory="1.5Gi", cpu="500m", **{"nvidia.com/gpu": 1})))
    assert role_limits(job) == {"worker": Limits(memory_bytes=3 << 29, cpu_milli=500)}
    assert role_limits(typed_manifest(a_torch_job()))["worker"] == Limits()


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"memory": "lots"}, "memory"),
        ({"memory": "1k"}, "memory"),
        ({"memory": "1e30"}, "memory"),
        ({"memory": "2Pi"}, "memory"),
        ({"cpu": -1}, "cpu"),
        ({"cpu": 0}, "cpu"),
        ({"cpu": "9e30"}, "cpu"),
        ({"cpu": 18_000_000_000_000}, "cpu"),
    ],
)
def test_amount_that_is_none_is_refused_with_its_field(limits: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        role_limits(typed_manifest(a_torch_job(container=resources(**limits))))
    path = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits"
    assert refused.value.field == f"{path}.{field}"


def test_launcher_has_what_its_workers_may_have_together() -> None:
    job = typed_manifest(an_mpi_job(launcher=resources(memory="1Gi"), worker=resources(memory="2Gi", cpu=2)))
    limits = role_limits(job)
    assert launcher_limits(limits, 3) == Limits(memory_bytes=7 << 30, cpu_milli=6_000)
    most = {"launcher": Limits(), "worker": Limits(memory_bytes=1 << 50, cpu_milli=1_000_000_000)}
    assert launcher_limits(most, 100_000) == most["worker"]
    assert launcher_limits({"launcher": Limits(memory_bytes=1)}, 3) == Limits()
