"""How programs ended, why jobs failed for good, and why objects of jobs are made anew."""

from typing import Literal

from voda.domain.reasons.base import ReasonPart
from voda.domain.reasons.holds import LostRun
from voda.domain.reasons.nodes import Said


class ProgramEnd(ReasonPart, frozen=True, kw_only=True):
    """What is known of each end of a program that failed."""

    said: str = ""
    """What it printed last, or what its kubelet says of it."""
    are_lines: bool = False
    """Whether these are its last lines, rather than one message."""
    hint: str = ""
    """What to do about it, where that is known."""


class NotRun(ProgramEnd, frozen=True, kw_only=True):
    """It could not be started."""

    problem: str


class KilledForMemory(ProgramEnd, frozen=True, kw_only=True):
    """It, or one of its processes, was killed as memory ran out."""

    limit_bytes: int = 0
    """0: not known."""


class Exited(ProgramEnd, frozen=True, kw_only=True):
    """It ended by itself, or by a signal."""

    exit_code: int = 0
    """0 beside a signal: not known."""
    signal: int = 0
    """0: none."""
    word: str = ""
    """Its kubelet's: `OOMKilled`."""


class ToldToEnd(ProgramEnd, frozen=True, kw_only=True):
    """Others than voda told it to end."""


class PodLost(ProgramEnd, frozen=True, kw_only=True):
    """Its pod went without its fault."""

    word: str
    """Its kubelet's, or its node's controller's: `Evicted`."""


class PodFailed(ProgramEnd, frozen=True, kw_only=True):
    """Its kubelet says that its pod failed."""

    word: str = ""


HowEnded = NotRun | KilledForMemory | Exited | ToldToEnd | PodLost | PodFailed
ProgramFailure = HowEnded | Said


class ReplicaFailed(ReasonPart, frozen=True, kw_only=True):
    """The program of a replica failed, and is not started again."""

    replica: str
    how: ProgramFailure
    policy: Literal["", "Never", "ExitCode"] = ""
    """Its restartPolicy, where that does not let it be started again."""
    restarts: int = 0
    """After which backoffLimit does not."""


class PastDeadline(ReasonPart, frozen=True, kw_only=True):
    """The job was active for longer than activeDeadlineSeconds."""

    limit_s: float


class GivenUp(ReasonPart, frozen=True, kw_only=True):
    """Its operator calls the job failed."""

    object: str
    """Its kind."""
    limit: Literal["", "deadline", "backoff"] = ""
    """Of its manifest that it has reached: activeDeadlineSeconds, backoffLimit."""
    word: str = ""
    """The operator's."""
    text: str = ""
    """In its words."""
    last: ReplicaFailed | None = None


class FailedTooOften(ReasonPart, frozen=True, kw_only=True):
    """Its workers failed by themselves more often than backoffLimit allows."""

    times: int
    most: int
    last: ReplicaFailed | None = None


class NoNamespace(ReasonPart, frozen=True, kw_only=True):
    """The cluster lacks the namespace of its objects."""

    namespace: str


JobFailure = ReplicaFailed | PastDeadline | GivenUp | FailedTooOften | NoNamespace | LostRun | Said
"""Why a job failed for good."""


class VoidSuccess(ReasonPart, frozen=True, kw_only=True):
    """What its operator took for a success is none."""

    operator: str
    replica: int | None = None
    """Whose; None: the launcher's."""
    was_deleted: bool = False
    """Whether its pod is known to have been deleted before its program had finished."""


class FirstIsDone(ReasonPart, frozen=True, kw_only=True):
    """Its replicas only work with replica 0, which has succeeded and gets no pod any more."""


ObjectVoid = VoidSuccess | FirstIsDone
"""Why an object is made anew."""
