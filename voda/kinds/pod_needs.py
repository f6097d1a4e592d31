"""What the workers of a job ask of their nodes besides GPUs, as their pods' templates say it.

Rules: pure; what the API server would refuse in each pod is refused here, in one sentence. Where the templates of a
job's roles differ, each worker is taken to ask for the most of each resource, and of the rest for what all of them ask.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import msgspec

from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.labels import check_label
from voda.domain.node import NodeTerm, PodNeeds, Requirement, Toleration
from voda.kinds.base import JobManifest
from voda.kinds.pod_template import NodeSelectorRequirement, NodeSelectorTerm, PodTemplateSpec, PodToleration
from voda.kinds.quantities import pod_requests

MOST_BYTES: Final = 16_384
"""Of the needs of one job as JSON."""
MOST_OF: Final[Mapping[str, int]] = {
    "labels in nodeSelector": 64,
    "nodeSelectorTerms": 64,
    "requirements in nodeSelectorTerms": 256,
    "values in nodeSelectorTerms": 256,
    "tolerations": 64,
}
"""Of what each plan compares with the nodes, in one job."""
_MOST_MILLI: Final = 2**63 - 1
"""What an event can hold; no machine has as much."""
OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of a device class: so many devices of it. kube-scheduler makes the claim; no node offers them."""
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATES: Final = ("Equal", "Exists", "Lt", "Gt")
_COUNTS: Final[Mapping[str, tuple[str, Callable[[int], bool]]]] = {
    "In": ("at least one value", lambda count: count > 0),
    "NotIn": ("at least one value", lambda count: count > 0),
    "Exists": ("no values", lambda count: count == 0),
    "DoesNotExist": ("no values", lambda count: count == 0),
    "Gt": ("one value", lambda count: count == 1),
    "Lt": ("one value", lambda count: count == 1),
}
"""Operator -> how many values it has, in words and as a test."""
_BOUNDS: Final = ("Gt", "Lt")


def worker_needs(job: JobManifest, gpu_resource: str) -> PodNeeds | None:
    """Return what each worker of a job asks of its node besides `gpu_resource`; None: nothing.

    Raises:
        InvalidField: an amount, a requirement or a toleration is none that a pod can have, or there are too many.
    """
    roles = [role for role in job.placed_roles if role in job.roles]
    needs = reduce(_common, (_needs_of_role(job, role, gpu_resource) for role in roles))
    path = f"{job.path(job.resized_role)}.template.spec"
    if (size := len(msgspec.json.encode(needs))) > MOST_BYTES:
        raise InvalidField(
            path,
            f"{path}: its requests, nodeSelector, node affinity and tolerations have {size:,} bytes, expected up to"
            f" {MOST_BYTES:,}: name nodes by a label that they share",
        )
    for what, count in _counts(needs).items():
        if count > MOST_OF[what]:
            raise InvalidField(
                path,
                f"{path}: expected up to {MOST_OF[what]} {what}, got {count}: give the nodes a label that they share,"
                " and require it",
            )
    return needs if needs != PodNeeds() else None


def _counts(needs: PodNeeds) -> Mapping[str, int]:
    """Return how many there are of each of `MOST_OF`."""
    terms = needs.terms or ()
    requirements = [requirement for term in terms for requirement in (*term.labels, *term.fields)]
    values = sum(len(requirement.values) for requirement in requirements)
    counts = len(needs.selector), len(terms), len(requirements), values, len(needs.tolerations)
    return dict(zip(MOST_OF, counts, strict=True))


def _common(one: PodNeeds, other: PodNeeds) -> PodNeeds:
    if one == other:
        return one
    resources = {*one.requests, *other.requests}
    return PodNeeds(
        requests={name: max(one.requests.get(name, 0), other.requests.get(name, 0)) for name in sorted(resources)},
        selector={key: value for key, value in one.selector.items() if other.selector.get(key) == value},
        terms=one.terms if one.terms == other.terms else None,
        tolerations=tuple(dict.fromkeys((*one.tolerations, *other.tolerations))),
    )


def _needs_of_role(job: JobManifest, role: str, gpu_resource: str) -> PodNeeds:
    spec, path = job.roles[role].template.spec, f"{job.path(role)}.template.spec"
    selector = spec.node_selector or {}
    for key, value in selector.items():
        check_label(key, value, field=f"{path}.nodeSelector")
    return PodNeeds(
        requests=_requests(spec, path, gpu_resource),
        selector=dict(sorted(selector.items())),
        terms=_terms(spec, f"{path}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
        tolerations=tuple(dict.fromkeys(_tolerations(spec.tolerations or (), f"{path}.tolerations"))),
    )


def _requests(spec: PodTemplateSpec, path: str, gpu_resource: str) -> Mapping[str, int]:
    try:
        found = pod_requests(spec, path)
    except InvalidInput as error:
        raise InvalidField(path, str(error)) from error
    return {
        name: min(milli, _MOST_MILLI)
        for name, milli in sorted(found.items())
        if milli and name != gpu_resource and not name.startswith(OF_CLASS)
    }


def _terms(spec: PodTemplateSpec, path: str) -> tuple[NodeTerm, ...] | None:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return None
    path = f"{path}.nodeSelectorTerms"
    if not required.node_selector_terms:
        raise InvalidField(path, f"{path}: expected at least one term, got none")
    return tuple(_term(term, f"{path}[{number}]") for number, term in enumerate(required.node_selector_terms))


def _term(term: NodeSelectorTerm, path: str) -> NodeTerm:
    fields = term.match_fields or ()
    for number, field in enumerate(fields):
        where = f"{path}.matchFields[{number}]"
        _check(where, "key", field.key, ("metadata.name",))
        _check(where, "operator", field.operator, ("In", "NotIn"))
        if len(field.values or ()) != 1:
            raise _wrong(where, "values", "one value", len(field.values or ()))
    for number, each in enumerate(term.match_expressions or ()):
        for value in each.values or ("",):
            check_label(each.key, value, field=f"{path}.matchExpressions[{number}]")
    return NodeTerm(
        labels=_requirements(term.match_expressions or (), f"{path}.matchExpressions"),
        fields=_requirements(fields, f"{path}.matchFields"),
    )


def _requirements(found: Sequence[NodeSelectorRequirement], path: str) -> tuple[Requirement, ...]:
    for number, each in enumerate(found):
        where, values = f"{path}[{number}]", each.values or ()
        _check(where, "operator", each.operator, tuple(_COUNTS))
        expected, is_right = _COUNTS[each.operator]
        if not is_right(len(values)):
            raise _wrong(where, "values", f"{expected} for {each.operator}", len(values))
        if each.operator in _BOUNDS and not _is_whole(values[0]):
            raise _wrong(where, "values", f"a whole number for {each.operator}", values[0])
    return tuple(Requirement(key=each.key, operator=each.operator, values=each.values or ()) for each in found)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    return digits.isascii() and digits.isdecimal() and len(digits) < 19


def _tolerations(found: Iterable[PodToleration], path: str) -> Iterable[Toleration]:
    for number, each in enumerate(found):
        where, key, operator = f"{path}[{number}]", each.key or "", each.operator or "Equal"
        _check(where, "operator", operator, _TOLERATES)
        _check(where, "effect", each.effect or "", _EFFECTS)
        if not key and operator != "Exists":
            raise _wrong(where, "operator", "Exists where there is no key", operator)
        if operator == "Exists" and each.value:
            raise _wrong(where, "value", "none for Exists", each.value)
        if key:
            check_label(key, each.value or "", field=where)
        if each.effect != "PreferNoSchedule":
            yield Toleration(key=key, operator=operator, value=each.value or "", effect=each.effect or "")


def _check(path: str, field: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        expected = ", ".join(filter(None, allowed))
        raise _wrong(path, field, f"one of {expected}" if len(allowed) > 1 else expected, value)


def _wrong(path: str, field: str, expected: str, got: str | int) -> InvalidField:
    shown = repr(got[:60]) if isinstance(got, str) else got
    return InvalidField(f"{path}.{field}", f"{path}.{field}: expected {expected}, got {shown}")
