"""What the service gives a Kubernetes cluster: settings, and the jobs that the log has."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from voda.clock import Clock
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job
from voda.domain.reasons.stalls import StallReason
from voda.domain.settings import Settings
from voda.metrics import NO_TELEMETRY, Telemetry


class JobLog(Protocol):
    """The jobs of the log, as its latest reader has them."""

    def live_job(self, job_id: str) -> Job | None: ...

    def ended_job(self, job_id: str) -> Job | None:
        """Return a job that has ended; None: the log never had it, or forgot it."""

    def adopted_job(self, uid: str) -> str | None:
        """Return the id of the job that was made of an object; None: the object was not adopted."""

    def live_jobs(self) -> Iterable[Job]: ...

    def job_pools(self) -> Iterable[str]:
        """Return the pools that have live jobs; called several times per submit, so it must not look at each job."""

    def stall(self, job_id: str) -> StallReason | None:
        """Return what a live job waits for, as the log has it; None: it goes on."""

    def launcher_node(self, job_id: str) -> str:
        """Return the node that the plan has for the launcher of a live job; empty: it names none."""

    def is_mostly_silent(self, pool: str) -> bool:
        """Return whether most nodes of a pool are silent at once: what they share is believed ill, not they."""


class KubernetesSetup(Struct, frozen=True, kw_only=True):
    rule: PoolRule
    clock: Clock
    log: JobLog
    namespaces: Sequence[str] = ()
    """Where job objects are looked for; empty: everywhere."""
    kinds: Sequence[str] = ()
    """Which kinds of job objects are looked for; empty: all that voda knows."""
    pools: Sequence[str] = ()
    """Pools that exist even without nodes."""
    relist_s: float = 600.0
    values: TemplateValues = TemplateValues()
    settings: Callable[[str], Settings] = lambda _pool: Settings()
    """Returns those of a pool."""
    telemetry: Telemetry = NO_TELEMETRY
