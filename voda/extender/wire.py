"""The records of kube-scheduler's extender protocol, v1: filter, prioritize, preempt and bind.

Rule: what comes is read as Go reads it: letter case does not matter, unknown fields are skipped, null is nothing. What
goes has the names that Go writes. A pod stays bytes until its reader says which of its fields it needs (`read_pod`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from voda.domain.errors import InvalidInput

T = TypeVar("T", bound=Struct)
_NO_POD: Final = Raw(b"{}")


class _NamedNode(Struct, frozen=True):
    name: str = ""


class _NodeItem(Struct, frozen=True):
    metadata: _NamedNode = _NamedNode()


class _NodeItems(Struct, frozen=True):
    items: tuple[_NodeItem, ...] | None = None


class ExtenderArgs(Struct, frozen=True, rename="lower"):
    """What kube-scheduler asks before it places a pod: filter and prioritize."""

    pod: Raw = _NO_POD
    nodenames: tuple[str, ...] | None = None
    """What a nodeCacheCapable extender is sent."""
    nodes: _NodeItems | None = None
    """What any other one is sent instead."""

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that kube-scheduler would take."""
        if self.nodenames is not None or self.nodes is None:
            return self.nodenames or ()
        return tuple(node.metadata.name for node in self.nodes.items or ())


class ExtenderPreemptionArgs(Struct, frozen=True, rename="lower"):
    """What kube-scheduler asks where no node is free: which pods have to leave the nodes that it considers."""

    pod: Raw = _NO_POD
    nodenametovictims: Mapping[str, Raw] | None = None
    nodenametometavictims: Mapping[str, Raw] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that it considers."""
        return tuple(self.nodenametometavictims or self.nodenametovictims or ())


class ExtenderBindingArgs(Struct, frozen=True, rename="lower"):
    """The pod that is to be bound, and its node."""

    podname: str = ""
    podnamespace: str = ""
    poduid: str = ""
    node: str = ""


class ExtenderFilterResult(Struct, frozen=True, rename="pascal"):
    """The nodes that are left, and why each of the others is not."""

    node_names: tuple[str, ...] = ()
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    """Those on which no preemption would help."""
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal", gc=False):
    """How much a node is preferred, 0 to 10; the answer to prioritize is a list of these."""

    host: str
    score: int


class MetaPod(Struct, frozen=True):
    """A victim, by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(Struct, frozen=True, rename="pascal"):
    """The pods that must leave a node."""

    pods: Sequence[MetaPod]
    disruptions: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionResult(Struct, frozen=True, rename="pascal"):
    """Of each node, the pods that must leave it; none = nothing is to be preempted."""

    node_name_to_meta_victims: Mapping[str, MetaVictims] = {}


class ExtenderBindingResult(Struct, frozen=True, rename="pascal"):
    """Empty: the pod is bound."""

    error: str = ""


def read_arguments(body: bytes, kind: type[T]) -> T:
    """Return what kube-scheduler sent.

    Raises:
        InvalidInput: it is no JSON object, or a field has another type; it says where.
    """
    fields = _decode(body, dict[str, Raw], "the body")
    # Go's names are tried in any letter case; of two that differ in it, the last one counts.
    lower = {name.lower(): value for name, value in fields.items() if bytes(value) != b"null"}
    read: T = _decode(msgspec.json.encode(lower), kind, "the body")
    return read


def read_pod(pod: Raw, kind: type[T]) -> T:
    """Return the fields of a pod that a record names.

    Raises:
        InvalidInput: a field has another type; it says where.
    """
    read: T = _decode(bytes(pod), kind, "the pod")
    return read


def _decode(body: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at ")
        where = f"{what}, {path.strip('`').removeprefix('$.')}" if path else what
        raise InvalidInput(f"{where}: {sentence[0].lower()}{sentence[1:]}") from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from None
