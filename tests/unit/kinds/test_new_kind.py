"""A kind of job is two files: one that every room reads, and one that says what its operator does differently."""

import json
import subprocess
import sys
from pathlib import Path

KIND = """
from typing import ClassVar

from msgspec import Struct

from voda.kinds.base import JobManifest, KindSpec
from voda.kinds.pod_template import RoleTemplate


class JAXReplicas(Struct, frozen=True, rename="pascal"):
    worker: RoleTemplate


class JAXSpec(KindSpec, frozen=True, rename="camel", kw_only=True):
    jax_replica_specs: JAXReplicas


class JAXJob(JobManifest, frozen=True, rename="camel", kw_only=True):
    name: ClassVar[str] = "JAXJob"
    plural: ClassVar[str] = "jaxjobs"
    versions: ClassVar[tuple[str, ...]] = ("kubeflow.org/v1",)
    replica_specs: ClassVar[str] = "jaxReplicaSpecs"
    role_names: ClassVar[tuple[str, ...]] = ("Worker",)
    placed_roles: ClassVar[tuple[str, ...]] = ("Worker",)
    has_anchor: ClassVar[bool] = True
    container_name: ClassVar[str] = "jax"

    spec: JAXSpec

    @property
    def roles(self) -> dict[str, RoleTemplate]:
        return {"Worker": self.spec.jax_replica_specs.worker}
"""
ADAPTER = """
from typing import ClassVar

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.kinds.base import JobManifest
from voda.kinds.jaxjob import JAXJob


class JAXJobV1(JobKind):
    kind: ClassVar[type[JobManifest]] = JAXJob
    api_version: ClassVar[str] = "kubeflow.org/v1"
"""
MANIFEST = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "JAXJob",
    "metadata": {"name": "digits"},
    "spec": {
        "jaxReplicaSpecs": {
            "Worker": {
                "replicas": 3,
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "jax",
                                "image": "train",
                                "command": ["python", "train.py"],
                                "resources": {"limits": {"nvidia.com/gpu": 2}},
                            }
                        ]
                    }
                },
            }
        }
    },
}
USE = """
import json, sys
folder, manifest = sys.argv[1], json.loads(sys.argv[2])
import voda.kinds, voda.cluster.kubernetes.kinds
voda.kinds.__path__.append(f"{folder}/kinds")
voda.cluster.kubernetes.kinds.__path__.append(f"{folder}/kubernetes")

import msgspec
from voda.cluster.kubernetes.kinds.served_kinds import served
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.errors import InvalidField
from voda.events.text.failures import failure_text
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import refuse_unrunnable
from voda.manifests.parse import parse
from voda.projections.jobs.changes import new_job

parsed = parse(manifest)
resources = {"resources": [{"name": "jaxjobs", "kind": "JAXJob"}]}
kind = served({"/apis/kubeflow.org/v1": resources})["JAXJob"]
made = kind.new_object(parsed.spec, GPU_TAINTS, {})
job = msgspec.convert(made, JobObject)
failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "JAXJobFailed"}]}
end = kind.end(msgspec.convert({**made, "status": failed}, JobObject), (), "digits")
try:
    refuse_unrunnable(parsed)
    refusal = ""
except InvalidField as error:
    refusal = str(error)
print(json.dumps({
    "spec": [parsed.spec.kind, parsed.spec.requested, parsed.spec.gpus_per_replica],
    "warnings": [each.field for each in kubernetes_warnings(parsed, {"JAXJob": kind.api_version}, "nvidia.com/gpu")],
    "anchored": new_job(parsed.spec, 0.0).has_anchor,
    "replicas": kind.replicas(job),
    "sizes": [kind.can_resize(job, replicas) for replicas in (2, 3)],
    "resumed": kind.resume_patch(job, parsed.spec, 2).body,
    "gates": made["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["schedulingGates"],
    "end": failure_text(end.reason),
    "local": refusal,
}))
"""


def test_new_kind_is_submitted_placed_made_and_read_with_two_files(tmp_path: Path) -> None:
    for folder, text in (("kinds", KIND), ("kubernetes", ADAPTER)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "jaxjob.py").write_text(text)
    words = [sys.executable, "-c", USE, str(tmp_path), json.dumps(MANIFEST)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "spec": ["JAXJob", 3, 2],
        "warnings": [],
        "anchored": True,
        "replicas": 3,
        "sizes": [False, True],
        "resumed": {"spec": {"runPolicy": {"suspend": False}, "jaxReplicaSpecs": {"Worker": {"replicas": 2}}}},
        "gates": [{"name": "voda.dev/placement"}],
        "end": "its operator calls the JAXJob failed and gives no reason",
        "local": "kind: JAXJob runs on Kubernetes only; one machine runs Jobs and MPIJobs and PyTorchJobs",
    }
