"""Job of batch/v1: the Job controller of Kubernetes makes its pods. Pure.

Rules: one that voda makes is Indexed, and one of a user's own that is not has one pod; parallelism and completions
change together, so that the highest indices come and go and all others run on; a Job that exists keeps its containers
and its policies, so that those of a user's own must be as he needs them, and what voda tells its pods comes by
annotations. Agents of torchrun all start together, each knowing its rank, which is its index, and how many there are:
the annotation of a pod says it, as no template can.
"""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final

import msgspec

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.gpu_claims import owner_reference
from voda.cluster.kubernetes.kinds.operator_pods import is_past_deadline, lost
from voda.cluster.kubernetes.kinds.template import (
    with_annotation_references,
    with_environment,
    without_variables,
)
from voda.cluster.kubernetes.kinds.torch_agents import for_agents
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod
from voda.domain.job import JobSpec
from voda.kinds.base import JobManifest
from voda.kinds.indexed_job import ENDPOINT, NNODES, NODE_RANK, IndexedJob, NumberedReplicas, runs_agents
from voda.kinds.pod_template import DEFAULT_BACKOFF_LIMIT
from voda.kubernetes_client.paths import api_path

_PORT: Final = 29_500
_IGNORE_DISRUPTIONS: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
_INDEX_0_ENDS: Final = {"rules": [{"succeededIndexes": "0"}]}
_OF_SERVER: Final = ("selector", "manualSelector")


class IndexedJobV1(JobKind):
    kind: ClassVar[type[JobManifest]] = IndexedJob
    api_version: ClassVar[str] = "batch/v1"
    operator: ClassVar[str] = "kube-controller-manager"
    has_fixed_templates: ClassVar[bool] = True
    replaces_failed_pods: ClassVar[bool] = True
    is_ready_by_start: ClassVar[bool] = True
    kept_fields: ClassVar[Collection[str]] = ("suspend",)

    def replicas(self, job: JobObject) -> int:
        return 1 if job.spec.parallelism is None else job.spec.parallelism

    def starts_together(self, job: JobObject) -> bool:
        return job.metadata.annotations.get(well_known.STARTS_TOGETHER) == "true"

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        return replicas > 0 and not self.starts_together(job)

    def is_for_loss(self, job: JobObject, failed: KubeCondition, pods: Sequence[Pod]) -> bool:
        """Return whether lost pods alone used up what the Job may fail; see JobKind."""
        ended = [pod for pod in pods if pod.status.phase == "Failed"]
        return bool(ended) and all(lost(pod) for pod in ended) and not is_past_deadline(failed)

    def companions(self, job: JobObject) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return also the headless Service that names the replicas, where the template has a subdomain."""
        claims, subdomain, owner = super().companions(job), job.spec.template.spec.subdomain, job.metadata
        if not subdomain:
            return claims
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": subdomain,
                "namespace": owner.namespace,
                "labels": {well_known.MANAGED: "true"},
                "ownerReferences": [owner_reference(self.api_version, self.name, owner)],
            },
            # Replicas look for each other before they are ready.
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {well_known.JOB_NAME: owner.name},
            },
        }
        return (*claims, (api_path("v1", "services", owner.namespace), service))

    def _adapt(self, job: dict[str, Any], spec: JobSpec, *, is_new: bool) -> None:
        # No second pod of an index while the first one holds its GPUs.
        job["spec"]["podReplacementPolicy"] = "Failed"
        note_start(job, self.kind)
        if is_new:
            complete(job, spec)

    def _sized(self, job: JobObject, replicas: int) -> dict[str, Any]:
        return {"parallelism": replicas, "completions": replicas}


def note_start(job: dict[str, Any], kind: type[JobManifest]) -> None:
    """Note on a job whether its replicas only work with those that were started with them."""
    manifest = msgspec.convert(job, kind)
    if isinstance(manifest, NumberedReplicas) and runs_agents(manifest):
        job["metadata"].setdefault("annotations", {})[well_known.STARTS_TOGETHER] = "true"


def complete(job: dict[str, Any], spec: JobSpec) -> None:
    """Add what a Job can only be made with; what the user wrote stays."""
    body = job["spec"]
    body["completionMode"] = "Indexed"
    for name in _OF_SERVER:
        body.pop(name, None)
    labels = (body["template"].get("metadata") or {}).get("labels") or {}
    for name in well_known.GENERATED_LABELS & labels.keys():
        del labels[name]
    pod = body["template"]["spec"]
    has_agents = runs_agents(msgspec.convert(job, IndexedJob))
    if pod.setdefault("restartPolicy", "Never") == "Never":
        body.setdefault("podFailurePolicy", _IGNORE_DISRUPTIONS)
        _pause_by_index(body, has_agents=has_agents)
    if has_agents:
        _make_elastic(body, spec)


def _pause_by_index(body: dict[str, Any], *, has_agents: bool) -> None:
    """Let a failure hold back the successor of its own index alone, and no growth; as many as before fail the job."""
    if "backoffLimitPerIndex" in body:
        return
    limit = body.get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    if not has_agents:
        body["backoffLimit"] = limit
    # Under torchrun all others fail with replica 0, which is one failure of each and not as many of the job.
    body |= {"backoffLimitPerIndex": limit, "maxFailedIndexes": 0}


def _make_elastic(body: dict[str, Any], spec: JobSpec) -> None:
    """Let replicas under torchrun meet, whose number is written on their pods before they start."""
    body.setdefault("successPolicy", _INDEX_0_ENDS)
    pod = body["template"]["spec"]
    name = spec.name or spec.job_id
    service = pod.setdefault("subdomain", name)
    variables = {
        "PET_NPROC_PER_NODE": str(spec.gpus_per_replica),
        "PET_RDZV_BACKEND": "static",
        # In full: older torch compares it with its own name as the resolver has it, and hosts the store by that.
        ENDPOINT: f"{name}-0.{service}.{spec.namespace}.svc.cluster.local:{_PORT}",
        "PET_RDZV_ID": spec.job_id,
        # Older torch looks every 5 s whether its worker has ended.
        "PET_MONITOR_INTERVAL": "0.1",
    }
    told = {NNODES: f"{well_known.VARIABLE}{NNODES}", NODE_RANK: well_known.INDEX}
    # In a user's own, the number says which bounds the job has.
    template = without_variables(for_agents(with_environment(body["template"], variables)), told)
    body["template"] = with_annotation_references(template, told)
