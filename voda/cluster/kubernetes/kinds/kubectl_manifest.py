"""The manifests of a program for kubectl: what voda adds to an object that it makes itself is written into it. Pure.

Rule: what voda adds to the job when it is submitted is what stands there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.gpu_claims import claim_gpus, claim_template
from voda.cluster.kubernetes.kinds.indexed_job import complete
from voda.cluster.kubernetes.kinds.template import plain, with_annotation_references
from voda.domain.job import JobSpec
from voda.kinds.indexed_job import IndexedJob
from voda.kinds.registry import KINDS
from voda.manifests.parse import DEVICE_CLASS

_VARIABLES: Final = {
    name: f"{well_known.VARIABLE}{name}" for name in ("VODA_JOB_ID", "VODA_JOB_NAME", "VODA_API_URL", "VODA_JOB_TOKEN")
}


def kubectl_manifests(spec: JobSpec) -> Sequence[dict[str, Any]]:
    """Return a job with all that voda cannot add to an object that is there already, after the template of its claims.

    It is labelled for voda and suspended; voda starts it. The containers and policies of a Job are complete, because
    nobody can change them; those of an MPIJob voda changes when it takes it in.
    """
    assert spec.manifest is not None, "a program has a manifest"
    found: dict[str, Any] = plain(spec.manifest)
    metadata, kind = found["metadata"], KINDS[found["kind"]]
    labels = {well_known.MANAGED: "true", **metadata.get("labels", {})}
    found["metadata"] = {"name": metadata["name"], "namespace": spec.namespace, **metadata, "labels": labels}
    notes = found["metadata"].setdefault("annotations", {})
    found["spec"] = _suspended(found["spec"], kind.run_policy_field)
    if issubclass(kind, IndexedJob):
        found["spec"].setdefault("podReplacementPolicy", "Failed")
        complete(found, spec)
        found["spec"]["template"] = with_annotation_references(found["spec"]["template"], _VARIABLES)
    claim_gpus(kind, found, spec)
    # Else voda would make the template of its own objects.
    notes.pop(well_known.GPUS_CLAIMED, None)
    device_class = notes.pop(DEVICE_CLASS, "")
    if not device_class or not spec.gpus_per_replica:
        return [found]
    return [claim_template(metadata["name"], spec.namespace, device_class, spec.gpus_per_replica), found]


def _suspended(spec: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return `spec` suspended, by its run policy in a field; empty: it is in `spec` itself."""
    if not field:
        return {"suspend": True, **spec}
    return {field: {"suspend": True, **spec.get(field, {})}, **{name: spec[name] for name in spec if name != field}}
