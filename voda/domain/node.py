"""Nodes, the machines that carry GPUs, and what workers ask of them besides.

Rules: what is no GPU is counted in thousandths of its resource, as integers (`kinds.quantities`); a node whose `room`
is unknown takes every worker. Words and meaning are those of Kubernetes 1.37: nodeSelector, required node affinity,
taints, requests.
"""

from collections.abc import Mapping
from functools import cached_property
from sys import intern
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, GpuDevice, Gpus


class Taint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What keeps pods that do not tolerate it off a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    """NoSchedule or NoExecute; others keep no pod off."""

    @property
    def text(self) -> str:
        """As kubectl writes it: `dedicated=vision:NoSchedule`."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class Toleration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A taint that a pod puts up with."""

    key: str = ""
    """Empty: all, with the operator Exists."""
    operator: str = "Equal"
    """Equal, Exists, and Lt and Gt where the server has them."""
    value: str = ""
    effect: str = ""
    """Empty: all."""


class Requirement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one label of a node must be."""

    key: str
    operator: str = "In"
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements that a node meets together; a term without any matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """Of `metadata.name`, the only field there is."""


class PodNeeds(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What each worker of a job asks of its node; equal needs are one class."""

    requests: Mapping[str, int] = {}
    """Resource -> thousandths, without the resource that is its GPUs."""
    selector: Mapping[str, str] = {}
    terms: tuple[NodeTerm, ...] | None = None
    """A node must meet one of them; None: there are none to meet."""
    tolerations: tuple[Toleration, ...] = ()

    @cached_property
    def key(self) -> bytes:
        """What needs have in common that are equal."""
        return _encode(self)

    @cached_property
    def filter_key(self) -> bytes:
        """What needs have in common that are equal but for their requests."""
        return _encode((self.selector, self.terms, self.tolerations))

    @cached_property
    def demand(self) -> Mapping[str, int]:
        """What a worker takes of a node's room: resource -> thousandths, itself as a pod among them."""
        return {**_DEMAND_OF_A_POD, **self.requests}


_encode: Final = msgspec.msgpack.Encoder(order="sorted").encode
PODS: Final = "pods"
_DEMAND_OF_A_POD: Final[Mapping[str, int]] = {PODS: 1_000}


def demand_of(needs: PodNeeds | None) -> Mapping[str, int]:
    """Return the `demand` of needs, or of none."""
    return _DEMAND_OF_A_POD if needs is None else needs.demand


def with_known_labels(node: "Node") -> "Node":
    """Return a node whose labels are kept once: all nodes have the same 150 keys, and nearly the same values."""
    return replace(node, labels={intern(key): intern(value) for key, value in node.labels.items()})


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One machine of one pool (accelerator type)."""

    name: str
    pool: str = "default"
    gpus: Gpus
    """Allocatable GPUs, not capacity; for a moment perhaps fewer than its workers hold."""
    foreign_gpus: Gpus = NO_GPUS
    """GPUs used by pods that voda does not manage."""
    launchers: tuple[str, ...] = ()
    """Jobs whose launchers have some of these."""
    is_ready: bool = True
    """False: it is silent; workers there may go on, so they stay for `Settings.node_grace_s`."""
    is_schedulable: bool = True
    """False: it is cordoned; it takes no new workers, those that run there stay."""
    is_draining: bool = False
    """Whether its workers are to go elsewhere at once."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    """Those that keep off workers that do not tolerate them."""
    room: Mapping[str, int] | None = None
    """Resource -> thousandths of it that other pods leave, `pods` among them, GPUs not; what is absent is 0.

    None: unknown, and no bound.
    """
    devices: tuple[GpuDevice, ...] = ()
    """GPUs that pods may share, by index; () = it shares none."""

    @property
    def is_special(self) -> bool:
        """Whether it may not take every worker that it has GPUs for, or has launchers of jobs."""
        return bool(not self.is_open or self.launchers or self.taints or self.room is not None)

    @cached_property
    def usable_gpus(self) -> Gpus:
        """GPUs for new workers; 0 while the node is silent, cordoned or draining."""
        return self.own_gpus if self.is_open else NO_GPUS

    @property
    def is_open(self) -> bool:
        """Whether it takes new workers."""
        return self.is_ready and self.is_schedulable and not self.is_draining

    @property
    def own_gpus(self) -> Gpus:
        """GPUs that others leave, whatever the node's state."""
        return max(NO_GPUS, self.gpus - self.foreign_gpus)
