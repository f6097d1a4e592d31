"""What is remembered of a job across a crash of voda: what was asked for, and how far it came.

Rule: written before an act (an intent) and after it (an outcome), so that whoever reads it can go on.
"""

from typing import Final, Literal

from msgspec import Struct

from voda.domain.gpus import Gpus
from voda.events.types import ExitCause

State = Literal["running", "halting", "halted", "stopping"]
Ended = Literal["", "completed", "failed"]


FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0


def pause_s(failures: int) -> float:
    """Return how long to wait before the restart after the n-th failure, seconds."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S)


class Record(Struct, kw_only=True, omit_defaults=True):
    """A job of the local cluster; changed in place by its owner."""

    job_id: str
    pool: str
    state: State = "halted"
    kind: Literal["mpi", "torch"] = "mpi"
    grace_s: float = 30.0
    gpus_per_replica: Gpus = Gpus(1)
    size: int = 0
    """Workers it was to have last; of those that are missing, the plan starts some again."""
    devices: dict[int, tuple[str, ...]] = {}
    """worker index -> devices it holds, ending workers too."""
    leaving: set[int] = set()
    """Of those in `devices`, the ones that were told to go."""
    runs: dict[str, int] = {}
    """replica -> number of its newest start."""
    judged: dict[str, int] = {}
    """replica -> number of the newest start whose end has been dealt with."""
    done: set[int] = set()
    """Workers that ended well while their job waits for others; they hold their devices until it has ended."""
    port: int = 0
    """Where the agents of a PyTorchJob meet."""
    failures: int = 0
    cuts: int = 0
    """How often others told a replica to end since the job was last halted, or the machine was started."""
    not_before: float = 0.0
    """Instant before which nothing is started again after a failure."""
    forgiven_until: float = 0.0
    """Instant until which an end of the launcher says nothing, because a worker was killed under it."""
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
        """Why a worker goes of which nothing else is known."""
        causes: dict[str, ExitCause] = {"completed": "finished", "failed": "failed"}
        return causes.get(self.ended, "stopped")

    @property
    def is_sized(self) -> bool:
        """Whether it runs, and can be told another size."""
        return bool(self.devices) and self.size > 0 and self.state == "running" and not self.ended

    @property
    def expected(self) -> tuple[int, ...]:
        """Indices of the workers that shall run, or run again; not those that a shrink takes away."""
        return tuple(sorted({*self.wanted, *range(self.size)}))

    def count_failure(self, now: float) -> None:
        """Count a failure, and put the restart off; replicas that fail together fail once."""
        if now >= self.not_before:
            self.failures += 1
            self.not_before = now + pause_s(self.failures)

    def count_cut(self, now: float) -> None:
        """Put the restart off after others told a replica to end, as after a failure; it counts for nothing else."""
        if now >= self.not_before:
            self.cuts += 1
            self.not_before = now + pause_s(self.cuts)


class Exit(Struct, frozen=True, kw_only=True):
    """How a replica's program ended, as its shim wrote it."""

    run: int
    code: int = 0
    """-1 where a signal ended it."""
    signal: int = 0
    was_told: bool = False
    """It was told to end: by voda, or by who clears up a machine before it shuts down."""
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


class Alive(Struct, frozen=True, kw_only=True):
    """The shim of a replica, as it wrote itself down."""

    run: int
    pid: int
    start: int
    """Ticks since boot."""
    log_at: int = 0
    """Size of the output when this run began."""
