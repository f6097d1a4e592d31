"""What is desired of a job, what there is of it, and the steps from one to the other, as records; see `steps`."""

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.job import Job
from voda.domain.reasons.failures import ObjectVoid


class DesiredRun(Struct, frozen=True):
    """The job is to run; worker i on nodes[i], which is empty while no action has named a node."""

    nodes: tuple[str, ...]


class DesiredHalt(Struct, frozen=True):
    """The job is to have no pods, and keep its object."""

    is_kill: bool = False
    """Whether its pods have no time left for a checkpoint."""


class DesiredStop(Struct, frozen=True):
    """The job is over for the log."""

    is_unwanted: bool
    """Whether its object is to go too: it was canceled."""
    is_kill: bool = False
    """Whether its pods have no time left: an admin said so."""


Desired = DesiredRun | DesiredHalt | DesiredStop


class ObservedJob(Struct, frozen=True, kw_only=True):
    """What there is of a job."""

    job_id: str
    job: Job | None
    """As the log has it; None: it is not live."""
    kube_job: KubeJob | None
    workers: Mapping[str, Pod]
    """Its worker pods by key."""
    indices: Mapping[str, int]
    """key -> replica index, of the workers."""
    pods: Mapping[str, Pod]
    """All pods of its object, launchers too."""
    launcher_node: str = ""
    """Where the plan has its launcher; empty: it names no node."""
    dead_nodes: Mapping[str, bool]
    """Nodes of its pods that do not answer; True: the node is gone altogether."""
    now: float
    most_grace_s: float = math.inf
    """Most that the grace of a pod counts for."""
    obstacle: str = ""
    """Why new pods of it would be made in vain, one sentence; empty: they would not."""


class DeleteObject(Struct, frozen=True):
    """Delete the job object, and by that all it owns."""


class Unregister(Struct, frozen=True):
    """Record that the object is to be replaced: before it is deleted, so that its absence does not cancel the job."""

    reason: ObjectVoid | None = None
    """None: its pods say so."""


class DeletePods(Struct, frozen=True):
    """Delete pods; their successors come under the same names, if the job object asks for them."""

    keys: tuple[str, ...]
    why: Literal["misplaced", "ungated", "left over", "ended", "lost", "overdue", "slow"]
    """Where it is "lost", they are deleted at once, though the node has not confirmed it; where "slow", with the most
    grace that counts."""


class LiftGates(Struct, frozen=True):
    """Let kube-scheduler bind pods to their nodes, all or none."""

    nodes: Mapping[str, str]
    """key -> node."""
    replicas: int = 0
    """How many there will be, where they are to know it; 0: they need not."""


class StartUnready(Struct, frozen=True):
    """Make an object that was adopted ready, and start it, in one patch."""

    replicas: int


class ReportObstacle(Struct, frozen=True):
    """Say why the job does not start; nothing else can be done."""

    reason: str


Step = Patch | StartUnready | DeleteObject | Unregister | DeletePods | LiftGates | ReportObstacle
