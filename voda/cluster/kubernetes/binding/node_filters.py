"""Which nodes a pod admits: its nodeSelector, its required node affinity, and the taints it tolerates.

Rules: pure; word for word what kube-scheduler does (component-helpers' nodeaffinity and the TaintToleration plugin),
because voda's workers pass by it; what cannot be read matches no node.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from voda.cluster.kubernetes.objects import NodeObject, Pod, Taint, Toleration

UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What a cordoned node counts as tainted with."""
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER: Final = re.compile(r"[0-9]+")
_LARGEST: Final = 2**63 - 1


class _Requirement(Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.key} {self.operator} {', '.join(self.values)}".rstrip()


class _SelectorTerm(Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()

    def __str__(self) -> str:
        return " and ".join(str(each) for each in (*self.match_expressions, *self.match_fields)) or "nothing"


class _NodeSelector(Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[_SelectorTerm, ...] | None = ()


class _NodeAffinity(Struct, frozen=True):
    required: _NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


def intolerable(pod: Pod, node: NodeObject) -> Taint | None:
    """Return the first taint that keeps a pod away from a node; a cordoned node counts as tainted."""
    cordon: tuple[Taint, ...] = (UNSCHEDULABLE,) if node.spec.unschedulable else ()
    for taint in (*cordon, *node.spec.taints):
        if taint.effect in _KEEPS_AWAY and not any(_tolerates(each, taint) for each in pod.spec.tolerations):
            return taint
    return None


def unselected(pod: Pod, node: NodeObject) -> str:
    """Return the `key=value` of the pod's nodeSelector that a node lacks; empty where it has them all."""
    labels = node.metadata.labels
    for key, value in pod.spec.node_selector.items():
        if labels.get(key) != value:
            return f"{key}={value}"
    return ""


def unattracted(pod: Pod, node: NodeObject) -> str:
    """Return the pod's required node affinity if a node does not meet it; empty where it does."""
    if not pod.spec.affinity:
        return ""
    try:
        affinity = msgspec.convert(pod.spec.affinity, _Affinity).node_affinity
    except msgspec.ValidationError as error:
        return f"what cannot be read ({error})"
    if affinity is None or affinity.required is None:
        return ""
    terms = affinity.required.node_selector_terms or ()
    if any(_meets(term, node) for term in terms):
        return ""
    return ", or ".join(str(term) for term in terms) or "nothing"


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def _meets(term: _SelectorTerm, node: NodeObject) -> bool:
    # A term that asks for nothing admits no node, not every node.
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_is_legal(each) and _holds(each, node.metadata.labels) for each in term.match_expressions) and all(
        each.operator in ("In", "NotIn") and len(each.values) == 1 and _holds(each, fields)
        for each in term.match_fields
    )


def _is_legal(requirement: _Requirement) -> bool:
    # The API server admits a value that no label can have, such as -1; then nothing matches, not even NotIn.
    return all(_LABEL_VALUE.fullmatch(value) for value in requirement.values)


def _holds(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            # A node without the label has none of these values.
            return bool(values) and value not in values
        case "Exists":
            return value is not None and not values
        case "DoesNotExist":
            return value is None and not values
        case "Gt" | "Lt" as operator:
            return _compares(value, values, is_greater=operator == "Gt")
        case _:
            return False


def _compares(value: str | None, values: Sequence[str], *, is_greater: bool) -> bool:
    mine, bound = _integer(value), _integer(values[0]) if len(values) == 1 else None
    if mine is None or bound is None:
        return False
    return mine > bound if is_greater else mine < bound


def _integer(text: str | None) -> int | None:
    # No label begins with a sign.
    if text is None or not _INTEGER.fullmatch(text) or (number := int(text)) > _LARGEST:
        return None
    return number
