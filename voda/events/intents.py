"""What people request: one frozen record per fact.

Rule: a released record is never edited in place; raise its `SCHEMA` and add an upcaster in codec.py.
"""

from voda.domain.cells import CellsSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import PodNeeds
from voda.domain.reasons.requests import CancelCause, Requested
from voda.domain.settings import SettingsPatch
from voda.domain.sizes import JobSizes
from voda.events.records import Data, JobFact, PoolFact


class NodeIntent(Data, frozen=True, kw_only=True):
    """What is requested of a node, whatever its pool."""

    name: str

    @property
    def stream(self) -> str:
        return f"node.{self.name}"


class JobSubmitted(Data, frozen=True, kw_only=True):
    TYPE = "job.submitted"
    SCHEMA = 4
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    spec: JobSpec

    @property
    def stream(self) -> str:
        return f"job.{self.spec.job_id}"


class JobCancelRequested(JobFact, frozen=True, kw_only=True):
    TYPE = "job.cancel_requested"
    MAKES_PLAN_DUE = True
    reason: CancelCause = Requested()
    with_array: bool = False
    """Whether its array is canceled as a whole: no task joins it any more."""
    is_kill: bool = False
    """Whether its processes are killed at once, without time for a checkpoint."""


class JobHaltRequested(JobFact, frozen=True, kw_only=True):
    """The job shall give its workers back; it stays in the queue, but no plan gives it any until it is resumed."""

    TYPE = "job.halt_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    reason: Requested = Requested()


class JobResumeRequested(JobFact, frozen=True, kw_only=True):
    """Plans may give a halted job workers again."""

    TYPE = "job.resume_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False


class JobChanged(JobFact, frozen=True, kw_only=True):
    """A new request for a live job; None = as before."""

    TYPE = "job.changed"
    MAKES_PLAN_DUE = True
    min_replicas: int | None = None
    max_replicas: int | None = None
    requested_replicas: int | None = None
    sizes: JobSizes | None = None
    """At which it runs from now on, the bounds among them; where these are all between the bounds, at each."""
    priority: int | None = None
    epochs: int | None = None
    gpus_per_replica: Gpus | None = None
    """Of an object whose templates somebody changed while it was suspended; as the next two."""
    launcher_gpus: Gpus | None = None
    needs: PodNeeds | None = None
    by: str = ""
    """A user; empty: not known."""
    to_pool: str | None = None
    """Another of its pools; without effect once a plan has given it workers, and while it waits for other jobs."""


class NodeDrainRequested(NodeIntent, frozen=True, kw_only=True):
    """Workers shall leave the node by the next plan, and no other comes there, until it is undrained or leaves."""

    TYPE = "node.drain_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    reason: Requested = Requested()


class NodeUndrainRequested(NodeIntent, frozen=True, kw_only=True):
    """Plans may put workers on the node again."""

    TYPE = "node.undrain_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False


class SettingsChanged(PoolFact, frozen=True, kw_only=True):
    """From here on the pool has these settings; what is not named stays."""

    TYPE = "settings.changed"
    MAKES_PLAN_DUE = True
    settings: SettingsPatch


class VirtualClustersApplied(Data, frozen=True, kw_only=True):
    """From here on the pool has these cells and virtual clusters, which fit its nodes; empty: it has none."""

    TYPE = "virtual_clusters.applied"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    pool: str
    cells: CellsSpec

    @property
    def stream(self) -> str:
        return f"cells.{self.pool}"


Intent = (
    JobSubmitted
    | JobCancelRequested
    | JobHaltRequested
    | JobResumeRequested
    | JobChanged
    | NodeDrainRequested
    | NodeUndrainRequested
    | SettingsChanged
    | VirtualClustersApplied
)
