"""What stands behind the API, as the composition root makes it, or a test.

Rule: the server alone knows all of it; each route is given the parts that it names as its fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from voda.api.admission import CallerLimits
from voda.api.what_ifs import NoWhatIfs, WhatIfs
from voda.application.job_folders import FolderKeeper
from voda.application.journal import Journal
from voda.application.submit_job import JobSubmitter
from voda.auth.local_users import LocalUsers
from voda.auth.tokens import Authenticator
from voda.cluster.port import Outputs, RemoteCommands
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.operator.pod_ports import NO_PODS, PodPorts
from voda.projections.live import Live

_USUAL_LIMITS: Final = CallerLimits()
_NO_WHAT_IFS: Final = NoWhatIfs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The parts, by the names that routes have for them."""

    journal: Journal
    live: Live
    """What decisions read, as the journal's view has it."""
    submits: JobSubmitter
    pools: Sequence[str]
    """Pools that take jobs; the first is the default."""
    gpu_resource: str = ""
    """As in JobRules."""
    access: Authenticator
    local_users: LocalUsers | None = None
    """Tells callers without a token at the Unix socket; None: there is none."""
    limits: CallerLimits = _USUAL_LIMITS
    outputs: Outputs | None = None
    """The output of jobs; None: the cluster keeps no output."""
    commands: RemoteCommands | None = None
    """What users run beside replicas; None: the cluster runs no such commands."""
    folders: FolderKeeper | None = None
    """The folders of jobs; None: the cluster keeps none."""
    job_gpus: Callable[[str], Mapping[int, str]] = lambda _node: {}
    """Returns of a node GPU -> id of the job of which a worker has all of it, as far as this replica sees that."""
    pods: PodPorts = NO_PODS
    what_ifs: WhatIfs = _NO_WHAT_IFS
    page_url: Callable[[], str] = str
    """Returns the address at which a browser of this machine finds the page; empty: whoever asks knows it best."""
    not_ready: Callable[[], str] = str
    """Returns why the service is not ready, one sentence; empty when it is."""
    health_warning: Callable[[], str] = str
    """Returns what is wrong with log or nodes though the service is ready, one sentence; empty where nothing is."""
    telemetry: Telemetry = NO_TELEMETRY
    exposition: Callable[[], bytes] = bytes
    """Returns what telemetry took, as Prometheus reads it."""
