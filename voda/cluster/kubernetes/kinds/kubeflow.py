"""What all kinds of kubeflow.org have in common: roles with pod templates, and a run policy that can suspend. Pure.

Rule: an object is made, and one of a user's own is made ready, by the same steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes.kinds import pod_names as named
from voda.cluster.kubernetes.kinds.base import Patch, Site
from voda.cluster.kubernetes.kinds.merge_patch import difference
from voda.cluster.kubernetes.kinds.template import placed_by_voda, with_environment
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import Pod
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.manifests.versions import in_version
from voda.manifests.warnings.ignored_fields import ANNOTATIONS

_OURS: Final = "voda.dev/"
_QUANTITIES: Final = ("limits", "requests")


class Kubeflow(ABC):
    """One kind of kubeflow.org."""

    name: ClassVar[str]
    api_version: ClassVar[str]
    plural: ClassVar[str]
    role_specs: ClassVar[str]
    """Field of spec that holds the roles."""
    roles: ClassVar[Sequence[str]]
    placed: ClassVar[Sequence[str]]
    """Roles whose pods are replicas, the one that comes first in front."""

    def created(self, spec: JobSpec, site: Site, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the object to create; see JobKind."""
        if spec.manifest is None or spec.manifest.get("kind") != self.name:
            raise ActionRefused(f"job {spec.job_id}: has no manifest of a {self.name}, so there is nothing to run")
        converted = in_version(spec.manifest, self.api_version).manifest
        fresh = {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": _metadata(converted["metadata"], spec),
            "spec": _plain(converted["spec"]),
        }
        self._make_ready(fresh, spec, site, environment)
        # A controller named here would keep the operator from what voda is asked to run.
        fresh["spec"]["runPolicy"].pop("managedBy", None)
        for role, count in self._counts(frozenset(fresh["spec"][self.role_specs]), spec.requested).items():
            fresh["spec"][self.role_specs][role]["replicas"] = count
        return fresh

    def adopted(self, manifest: Mapping[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> Patch:
        """Return the patch that makes an object of a user's own ready; see JobKind."""
        ready = _plain(manifest)
        self._make_ready(ready, spec, site, environment)
        body = difference(manifest, ready)
        if body:
            body.setdefault("metadata", {})["resourceVersion"] = manifest["metadata"].get("resourceVersion", "")
        return Patch(body=body)

    def outdated(self, namespace: str, name: str) -> Sequence[str]:
        """Return the paths of what was made of former templates; see JobKind."""
        return ()

    def halted(self) -> Patch:
        """Return the patch that suspends; see JobKind."""
        return Patch(body={"spec": {"runPolicy": {"suspend": True}}})

    def index(self, job_name: str, pod: Pod) -> int | None:
        """Return the replica index of a pod; see JobKind."""
        return named.index(job_name, pod)

    def is_launcher(self, pod: Pod) -> bool:
        """Say whether a pod is its job's launcher."""
        return named.is_launcher(pod)

    def _make_ready(self, job: dict[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> None:
        metadata, roles = job["metadata"], job["spec"][self.role_specs]
        metadata.setdefault("labels", {})[well_known.MANAGED] = "true"
        metadata.setdefault("annotations", {})[well_known.JOB_ID] = spec.job_id
        job["spec"].setdefault("runPolicy", {})["suspend"] = True
        first_index = 0
        for role in self.roles:
            if role not in roles:
                continue
            template = with_environment(roles[role]["template"], environment)
            if role in self.placed:
                template = placed_by_voda(template, spec.job_id, site, first_index)
                first_index += 1
            roles[role]["template"] = template
        self._adapt(job, spec)

    def _adapt(self, job: dict[str, Any], spec: JobSpec) -> None:  # noqa: B027 - most need nothing
        """Change what this kind needs besides."""

    @abstractmethod
    def _counts(self, roles: frozenset[str], replicas: int) -> Mapping[str, int]:
        """Return role -> pods, of the roles whose number voda sets."""


def _metadata(metadata: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return the metadata of a new object: what belongs to one that was is left behind."""
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != well_known.KUEUE_QUEUE}
    # What voda notes on an object is of that object: a copied count of failures would end the job at once.
    notes = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not key.startswith(_OURS) or key in ANNOTATIONS
    }
    return {
        "name": spec.name or spec.job_id,
        "namespace": spec.namespace,
        "labels": _plain(labels),
        "annotations": _plain(notes),
    }


def _plain(value: Any, field: str = "") -> Any:
    """Return a copy that any API server takes: without nulls, which mean absent, and with fractions as quantities."""
    if isinstance(value, Mapping):
        return {
            key: str(item) if field in _QUANTITIES and isinstance(item, float) else _plain(item, key)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
