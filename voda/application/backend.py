"""The ports that use cases and routes work with; the composition root makes them, or a test from memory adapters.

Rule: use cases and routes reach the outside world through this record alone.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from voda.application.job_folders import FolderKeeper
from voda.application.read_model import ReadModel
from voda.auth.local_users import LocalUsers
from voda.auth.tokens import Authenticator
from voda.clock import Clock
from voda.cluster.port import Outputs, RemoteCommands
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact
from voda.kinds.base import FieldWarning
from voda.log.store import EventStore
from voda.manifests.parse import ACCELERATOR, ParsedManifest
from voda.manifests.text import MOST_BYTES
from voda.metrics import NO_TELEMETRY, Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """How much one caller may ask for."""

    body_bytes: int = MOST_BYTES
    jobs_per_user: int = 1_000
    """Live jobs; admins may have more."""
    request_s: float = 30.0
    """Longest time for a request to arrive in full, and for the caller to take an answer that is not a stream."""
    connections: int = 500
    """Of all callers at a time: each costs a file, a process often may open 1,024, and jobs need some too."""
    connections_per_address: int = 250
    """Of them from one address; addresses of this machine are exempt, as all its users share them."""
    reserved: int = 50
    """Of them for requests of admins alone."""
    requests_per_user: int = 100
    """Under way at a time, those of the user's jobs counted apart; admins may have more."""
    streams_per_user: int = 50
    """Events and logs that are followed at a time, and commands that run beside replicas; also of an admin."""
    command_idle_s: float = 14_400.0
    """After so long without input or output, a command beside a replica is ended."""
    command_s: float = 86_400.0
    """Longest time that a command beside a replica may take."""
    idle_s: float = 60.0
    """An idle connection is closed after this."""
    heartbeat_s: float = 15.0
    """An idle stream sends a sign of life this often, so that both sides notice when the other is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The ports."""

    store: EventStore
    clock: Clock
    view: ReadModel
    access: Authenticator
    local_users: LocalUsers | None = None
    """Tells callers without a token at the Unix socket; None: there is none."""
    pools: Sequence[str]
    """Pools that take jobs; the first is the default."""
    pool_label: str = ACCELERATOR
    """Label of nodes: a job that selects nodes by it goes to the pool of that name."""
    outputs: Outputs | None = None
    """The output of jobs; None: the cluster keeps no output."""
    commands: RemoteCommands | None = None
    """What users run beside replicas; None: the cluster runs no such commands."""
    job_gpus: Callable[[str], Mapping[int, str]] = lambda _node: {}
    """Returns of a node GPU -> id of the job of which a worker has all of it, as far as this replica sees that."""
    folders: FolderKeeper | None = None
    """The folders of jobs; None: the cluster keeps none."""
    warnings: Callable[[ParsedManifest], Sequence[FieldWarning]] = lambda _parsed: ()
    """Returns the fields of a manifest that the cluster ignores or changes; raises InvalidField where it cannot run."""
    counted: Callable[[ParsedManifest], ParsedManifest] = lambda parsed: parsed
    """Returns a manifest with the GPUs that its claims ask for; InvalidField: that cannot be known."""
    refuse_unusable: Callable[[ParsedManifest], Awaitable[None]] = lambda _parsed: sleep(0)
    """Raises InvalidField where the job's user may not execute what the manifest says it runs with."""
    not_shared: Callable[[], str] = str
    """Returns why jobs of this machine get no parts of GPUs, one sentence; empty where they do, and on Kubernetes."""
    not_ready: Callable[[], str] = str
    """Returns why the service is not ready, one sentence; empty when it is."""
    health_warning: Callable[[], str] = str
    """Returns what is wrong with log or nodes though the service is ready, one sentence; empty where nothing is."""
    limits: CallerLimits = CallerLimits()
    telemetry: Telemetry = NO_TELEMETRY
    exposition: Callable[[], bytes] = bytes
    """Returns what telemetry took, as Prometheus reads it."""

    async def record(self, *facts: AnyFact, actor: str, version: int = ANY_VERSION, event_id: str = "") -> int:
        """Append facts of one stream, at least one, and return the position once the view has folded them.

        An `event_id` is that of a single fact; empty = a new one.

        Raises:
            VersionConflict: the stream has another version.
            StoreUnavailable: the log does not answer.
            StoreNotWritable: the log cannot be written.
        """
        clock = self.clock
        made = [
            Fact(data=fact, event_id=event_id or clock.new_id(), recorded_at=clock.now(), actor=actor) for fact in facts
        ]
        position = await self.store.append(facts[0].stream, version, made)
        await self.view.wait_for(position)
        return position
