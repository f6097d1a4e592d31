"""The manifest of a program for kubectl: complete, and the same job where voda submits it."""

from typing import Any

import pytest
from msgspec.structs import replace

from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.kubectl_manifest import kubectl_manifests
from voda.cluster.kubernetes.kinds.served_kinds import KINDS
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.domain.job import JobSpec
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import refuse_unrunnable
from voda.manifests.parse import parse
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest

VARIABLES = {"VODA_JOB_ID": "t", "VODA_JOB_NAME": "t", "VODA_API_URL": "http://voda", "VODA_JOB_TOKEN": "secret"}


def a_program(launcher: Launcher, **fields: Any) -> JobSpec:
    most = 1 if launcher == "plain" else 4
    job = ProgramJob(
        name="t", words=("python", "train.py"), launcher=launcher, most=most, image="train:1", time_limit_s=60, **fields
    )
    return replace(parse(program_manifest(job)).spec, namespace="team")


def made(spec: JobSpec) -> dict[str, Any]:
    """Return the object that voda makes of a job, variables in the order of their names."""
    assert spec.manifest is not None
    kind = next(kind for kind in KINDS if kind.name == spec.kind and kind.api_version == spec.manifest["apiVersion"])
    job = kind.new_object(spec, GPU_TAINTS, VARIABLES)
    for container in _containers(job):
        container["env"] = sorted(container["env"], key=lambda each: str(each["name"]))
    return job


def _containers(job: dict[str, Any]) -> list[dict[str, Any]]:
    roles = job["spec"].get("mpiReplicaSpecs", {"": job["spec"]}).values()
    return [container for role in roles for container in role["template"]["spec"]["containers"]]


@pytest.mark.parametrize("launcher", ["plain", "torchrun", "mpirun"])
def test_manifest_for_kubectl_when_voda_submits_it_makes_the_same_object(launcher: Launcher) -> None:
    spec = a_program(launcher, env=(("SEED", "7"),))
    complete = parse(kubectl_manifests(spec)[-1])
    refuse_unrunnable(complete)
    assert made(replace(complete.spec, namespace="team")) == made(spec)


@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
def test_job_for_kubectl_lacks_nothing_that_voda_cannot_add_to_one_that_is_there(launcher: Launcher) -> None:
    spec = a_program(launcher)
    written, own = kubectl_manifests(spec)[-1], made(spec)
    there = {**written, "spec": {**written["spec"], "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "t"}}}}
    warnings = kubernetes_warnings(parse(there), {"Job": "batch/v1"}, "nvidia.com/gpu")
    assert [warning.field for warning in warnings] == ["spec.activeDeadlineSeconds"]
    # Of the template, voda changes metadata, gates and tolerations of a suspended Job.
    del own["spec"]["template"]["metadata"]
    for field in ("schedulingGates", "tolerations"):
        del own["spec"]["template"]["spec"][field]
    told = {each["name"]: each for each in _containers(written)[0]["env"]}
    for name in VARIABLES:
        path = f"metadata.annotations['voda.dev/env.{name}']"
        assert told.pop(name) == {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    for job in (written, own):
        for container in _containers(job):
            container["env"] = [each for each in container["env"] if each["name"] not in VARIABLES]
    assert sorted(told) == sorted(each["name"] for each in _containers(own)[0]["env"])
    for container in (*_containers(written), *_containers(own)):
        container["env"] = sorted(container["env"], key=lambda each: str(each["name"]))
    assert written["spec"] == own["spec"]
    assert written["metadata"]["labels"] == {"voda.dev/managed": "true"}


def test_manifest_for_kubectl_leaves_what_it_was_made_of_as_it_is() -> None:
    spec = a_program("torchrun")
    before = repr(spec.manifest)
    kubectl_manifests(spec)
    assert repr(spec.manifest) == before


def test_job_that_kubectl_created_is_taken_in_by_a_patch_of_what_may_change_alone() -> None:
    spec = a_program("torchrun")
    patch = IndexedJobV1().adoption_patch(kubectl_manifests(spec)[-1], spec, GPU_TAINTS, VARIABLES).body
    assert patch["spec"].keys() == {"template"}
    assert patch["spec"]["template"].keys() == {"metadata", "spec"}
    assert patch["spec"]["template"]["spec"].keys() == {"schedulingGates", "tolerations"}
    told = patch["spec"]["template"]["metadata"]["annotations"]
    assert {f"voda.dev/env.{name}": value for name, value in VARIABLES.items()}.items() <= told.items()
