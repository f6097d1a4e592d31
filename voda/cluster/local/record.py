"""What the disk holds of a job and its replicas, so that the next voda can go on after a crash.

Rules: the record is written before an act (the intent) and after it (the outcome); the names on the disk stay, since a
new voda reads the records of an older one.
"""

from typing import Literal

from msgspec import Struct, field

from voda.domain.gpus import Gpus
from voda.events.types import ExitCause

RunState = Literal["running", "halting", "halted", "stopping"]
Ended = Literal["", "completed", "failed"]


class LocalJobRecord(Struct, kw_only=True, omit_defaults=True):
    """A job of the local cluster; changed in place by its owner."""

    job_id: str
    pool: str
    state: RunState = "halted"
    kind: Literal["mpi", "torch"] = "mpi"
    grace_s: float = 30.0
    gpus_per_replica: Gpus = Gpus(1)
    size: int = 0
    """Workers that the last plan gave it; the next plan starts those that are missing."""
    devices: dict[int, tuple[str, ...]] = {}
    """worker index -> devices it holds, ending workers too."""
    leaving: set[int] = set()
    """Those workers in `devices` that have been told to end."""
    runs: dict[str, int] = {}
    """replica -> number of its newest run."""
    judged: dict[str, int] = {}
    """replica -> number of the newest run whose end has been dealt with."""
    done: set[int] = set()
    """Workers that ended well while their job waits for others; they hold their devices until it has ended."""
    port: int = 0
    """Where the agents of a PyTorchJob meet."""
    failures: int = 0
    evictions: int = field(default=0, name="cuts")
    """How often others told a replica to end since the job was last halted or the machine booted."""
    not_before: float = 0.0
    """Instant before which nothing is started again after a failure."""
    forgiven_until: float = 0.0
    """Instant until which an end of the launcher does not count, because a worker was killed under it."""
    resumed_at: float = 0.0
    """Instant of the last start from a halt; the deadline counts from here."""
    ended: Ended = ""
    reason: str = ""
    succeeded_at: float = 0.0
    """Instant at which the first replica of a completed job ended; the others may end by themselves for a while."""
    boot_id: str = ""

    @property
    def wanted(self) -> tuple[int, ...]:
        """Indices of the workers that shall run."""
        return tuple(index for index in sorted(self.devices) if index not in self.leaving)

    @property
    def cause(self) -> ExitCause:
        """Why a worker ends, where nothing else is known of it."""
        causes: dict[str, ExitCause] = {"completed": "finished", "failed": "failed"}
        return causes.get(self.ended, "stopped")

    @property
    def is_sized(self) -> bool:
        """Whether it runs, so that a plan can resize it."""
        return bool(self.devices) and self.size > 0 and self.state == "running" and not self.ended

    @property
    def expected(self) -> tuple[int, ...]:
        """Indices of the workers that shall run, or run again; not those that a shrink takes away."""
        return tuple(sorted({*self.wanted, *range(self.size)}))


class Exit(Struct, frozen=True, kw_only=True):
    """How a replica's program ended, as its shim wrote it."""

    run: int
    code: int = 0
    """-1 where a signal ended it."""
    signal: int = 0
    was_told: bool = False
    """It was told to end: by voda, or by a machine that shuts down."""
    ended_at: float = 0.0
    problem: str = ""
    """Why the program could not be started, one sentence."""

    @property
    def exit_code(self) -> int:
        """As a shell and Kubernetes count it: 128 + the signal."""
        return 128 + self.signal if self.signal else self.code

    @property
    def is_success(self) -> bool:
        """Whether the program ended well."""
        return self.exit_code == 0


class ShimProcess(Struct, frozen=True, kw_only=True):
    """The shim of a replica, as it describes itself."""

    run: int
    pid: int
    start: int
    """Ticks since boot."""
    log_at: int = 0
    """Size of the output when this run began."""
