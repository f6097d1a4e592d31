"""The metadata and the pod templates of a job's object, made ready for voda. Pure.

Rules: what the user wrote stays, except where it would keep voda from placing the pods; a template that is made ready
twice changes once; the templates passed in are never changed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.domain.job import JobSpec
from voda.manifests.ignored_fields import ANNOTATIONS

_OURS: Final = "voda.dev/"
GPU_TAINTS: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Keys of the taints that mark GPU nodes; workers are made to tolerate them."""
_QUANTITIES: Final = ("limits", "requests")

Template = Mapping[str, Any]


class TemplateValues(Struct, frozen=True, kw_only=True):
    """What templates get beside what follows from the job."""

    tolerated_taints: Sequence[str] = ()
    environment: Callable[[JobSpec], Mapping[str, str]] = lambda spec: {}
    """Variables by which the processes of a job know voda."""


def new_metadata(metadata: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return the metadata of a new object, without what belongs to an object that the manifest was copied from."""
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
        "labels": plain(labels),
        "annotations": plain(notes),
    }


def plain(value: Any, field: str = "") -> Any:
    """Return a copy that any API server takes: without nulls, which mean absent, and with fractions as quantities."""
    if isinstance(value, str):
        # Most of them; whether a value is a Mapping takes longer to say.
        return value
    if isinstance(value, Mapping):
        return {
            key: str(item) if field in _QUANTITIES and isinstance(item, float) else plain(item, key)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def with_environment(template: Template, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a template whose containers all have the variables; what a container sets itself wins.

    They come first, so that the container's own variables and arguments can refer to them. One that refers to the
    annotation in which voda would tell it (`with_annotation_references`) is replaced.
    """
    pod = dict(template["spec"])
    pod["containers"] = [_with_variables(each, environment) for each in pod["containers"]]
    return {**template, "spec": pod}


def placed_by_voda(template: Template, job_id: str, taints: Sequence[str], first_index: int = 0) -> dict[str, Any]:
    """Return a template of replicas whose pods name their job; `first_index` is the replica of its first pod."""
    metadata, pod = _mapping(template.get("metadata")), dict(template["spec"])
    annotations = {**_mapping(metadata.get("annotations")), well_known.JOB_ID: job_id}
    for name in (well_known.FIRST_INDEX, well_known.NODE):
        annotations.pop(name, None)
    if first_index:
        annotations[well_known.FIRST_INDEX] = str(first_index)
    metadata["labels"] = {**_mapping(metadata.get("labels")), well_known.MANAGED: "true"}
    metadata["annotations"] = annotations
    # A pod that names its node is bound before anybody has decided.
    pod.pop("nodeName", None)
    pod["tolerations"] = _tolerations(_mappings(pod.get("tolerations")), taints)
    return {**template, "metadata": metadata, "spec": pod}


def gated(template: Template, *, keeps_scheduler: bool = False) -> dict[str, Any]:
    """Return a template whose pods wait for voda to lift a gate, and then for kube-scheduler; gates of others stay."""
    pod = dict(template["spec"])
    gates = _mappings(pod.get("schedulingGates"))
    if all(gate.get("name") != well_known.GATE for gate in gates):
        pod["schedulingGates"] = [*gates, {"name": well_known.GATE}]
    if not keeps_scheduler:
        # What a user names may be a scheduler that is not there.
        pod.pop("schedulerName", None)
    return {**template, "spec": pod}


def goes_where(template: Template, other: Template) -> bool:
    """Return whether pods may go to each node that the other's may go to, by selectors, affinity and taints."""
    pod, others = template["spec"], other["spec"]
    selector, of_others = _mapping(pod.get("nodeSelector")), _mapping(others.get("nodeSelector"))
    affinity, tolerations = pod.get("affinity"), _mappings(pod.get("tolerations"))
    is_as_free = affinity in (None, {}) or affinity == others.get("affinity")
    return (
        is_as_free
        and selector.items() <= of_others.items()
        and all(each in tolerations for each in _mappings(others.get("tolerations")))
    )


def tolerating(template: Template, taints: Sequence[str]) -> dict[str, Any]:
    """Return a template whose pods tolerate taints of these keys."""
    pod = dict(template["spec"])
    return {**template, "spec": {**pod, "tolerations": _tolerations(_mappings(pod.get("tolerations")), taints)}}


def with_annotated_environment(template: Template, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a template whose pods have the variables as annotations, where containers cannot be changed."""
    metadata = _mapping(template.get("metadata"))
    annotations = {f"{well_known.VARIABLE}{name}": value for name, value in environment.items()}
    return {
        **template,
        "metadata": {**metadata, "annotations": {**_mapping(metadata.get("annotations")), **annotations}},
    }


def with_annotation_references(template: Template, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return a template whose containers read variables from annotations of their pods: variable -> annotation."""
    pod = dict(template["spec"])
    references = [_reference(name, annotation) for name, annotation in annotations.items()]
    pod["containers"] = [{**each, "env": [*references, *(each.get("env") or ())]} for each in pod["containers"]]
    return {**template, "spec": pod}


def without_variables(template: Template, names: Collection[str]) -> dict[str, Any]:
    """Return a template whose containers do not set some variables themselves."""
    pod = dict(template["spec"])
    pod["containers"] = [
        {**each, "env": [own for own in each["env"] if own.get("name") not in names]} if each.get("env") else each
        for each in pod["containers"]
    ]
    return {**template, "spec": pod}


def _reference(name: str, annotation: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}


def _with_variables(container: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    references = [_reference(name, f"{well_known.VARIABLE}{name}") for name in environment]
    own = [each for each in container.get("env") or () if each not in references]
    named = {variable.get("name") for variable in own}
    added = [{"name": name, "value": value} for name, value in environment.items() if name not in named]
    return {**container, "env": [*added, *own]} if added else dict(container)


def _tolerations(own: Sequence[Mapping[str, Any]], taints: Sequence[str]) -> list[Mapping[str, Any]]:
    tolerated = [each.get("key") for each in own if each.get("operator") == "Exists" and not each.get("effect")]
    if None in tolerated or "" in tolerated:
        # Without a key everything is tolerated.
        return list(own)
    return [*own, *({"key": key, "operator": "Exists"} for key in taints if key not in tolerated)]


def _mapping(value: object) -> dict[str, Any]:
    """Return a copy of a mapping; empty for anything else, which no server would take."""
    return dict(value) if isinstance(value, Mapping) else {}


def _mappings(value: object) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
