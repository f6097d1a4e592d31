"""What users were told: their journal of acknowledgements, held against the log.

Rules: acknowledged = in the log, once; refused = without effect; no answer = in the log once or not at all, and the
same submit sent again, with the same key and to whichever replica, is one job. Every request carries a tag of its own
that its event carries too, so nothing has to be guessed.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from tests.dst.invariants.broken import Broken
from voda.domain.reasons.requests import Requested
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    SettingsChanged,
    VirtualClustersApplied,
)

KEY = "dst/key"
"""Label of a manifest: the Idempotency-Key of its submit."""
WHOLE: Final = "whole-"
"""Begins the reason by which all tasks of an array are canceled."""
Kind = Literal["submit", "change", "delete", "delete array", "settings", "virtual clusters"]


class Answered(Struct, frozen=True, kw_only=True):
    """One request and what became of it."""

    kind: Kind
    tag: str
    """Of a submit: the key, the same for every repetition; else of this request alone."""
    status: int
    """0: no answer, or one that tells nothing (5xx)."""
    job_id: str = ""
    """Of an acknowledged submit; of the job or array that a change or delete was about, as the answer names it."""
    position: int | None = None
    """How far whoever answered had read the log; None where it did not say."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the answer promises that it is recorded."""
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the answer promises that nothing came of it."""
        return 400 <= self.status < 500


class Journal:
    """Sees every event and every answer, in the order of the world."""

    def __init__(self) -> None:
        self.answers: list[Answered] = []
        self._found: dict[tuple[Kind, str], Event] = {}
        """The event of each tag."""
        self._open: dict[tuple[Kind, str], int] = {}
        """Tag -> requests that were sent and not refused: one of them may be recorded, perhaps later."""
        self._ends: dict[str, int] = {}
        """Job id -> position of its end."""
        self._canceled: set[str] = set()
        """Jobs that somebody wanted canceled."""
        self._tasks: dict[str, list[str]] = {}
        """Array -> its tasks."""

    def committed(self, event: Event) -> None:
        """Take in the next event of the log.

        Raises:
            Broken: it is there twice, or was refused.
        """
        tagged = _tagged(event)
        if tagged is not None:
            kind, tag = tagged
            if (first := self._found.setdefault(tagged, event)) is not event and kind != "delete array":
                where = f"at position {first.position} and at {event.position} ({first.stream}, {event.stream})"
                raise Broken("exactly once", f"{kind} {tag} is recorded twice: {where}")
            if not self._open.get(tagged) and not self._is_idle(event):
                raise Broken("refused", f"{kind} {tag} was refused, and is recorded at {event.position} afterwards")
        match event.data:
            case JobCompleted() | JobFailed() | JobCanceled():
                self._ends.setdefault(event.data.job_id, event.position)
            case JobCancelRequested():
                self._canceled.add(event.data.job_id)
            case JobSubmitted(spec=spec) if spec.array is not None:
                self._tasks.setdefault(spec.array.array_id, []).append(spec.job_id)

    def sent(self, kind: Kind, tag: str) -> None:
        """Take in that a request is on its way."""
        self._open[kind, tag] = self._open.get((kind, tag), 0) + 1

    def answered(self, answer: Answered) -> None:
        """Take in what a user was told, at the instant it was.

        Raises:
            Broken: the log says otherwise.
        """
        before = [one for one in self.answers if (one.kind, one.tag) == (answer.kind, answer.tag)]
        self.answers.append(answer)
        tagged = (answer.kind, answer.tag)
        found = self._found.get(tagged)
        if answer.is_acknowledged:
            self._acknowledge(answer, found, before)
        elif answer.is_refused:
            self._open[tagged] -= 1
            if found is not None and not self._open[tagged] and not self._is_idle(found):
                what = f"{answer.kind} {answer.tag} was refused ({answer.status}), and is at position {found.position}"
                raise Broken("refused", what)

    def _acknowledge(self, answer: Answered, found: Event | None, before: Sequence[Answered]) -> None:
        if answer.kind == "delete array":
            if left := {*self._tasks.get(answer.job_id, ())} - {*self._ends, *self._canceled}:
                what = f"{answer.tag} of array {answer.job_id} was answered {answer.status}, and spares {sorted(left)}"
                raise Broken("acknowledged", what)
            return
        if found is None:
            if answer.kind == "delete" and answer.job_id in {*self._ends, *self._canceled}:
                return
            raise Broken(
                "acknowledged", f"{answer.kind} {answer.tag} was answered {answer.status}, and is not in the log"
            )
        if answer.position is not None and answer.position < found.position:
            what = f"{answer.kind} {answer.tag} is at position {found.position}, and was answered at {answer.position}"
            raise Broken("read your writes", what)
        if answer.kind != "submit":
            return
        assert isinstance(found.data, JobSubmitted), "only a submit is tagged by its key"
        told = {one.job_id for one in [*before, answer] if one.is_acknowledged}
        if told != {found.data.spec.job_id}:
            jobs = ", ".join(sorted(told))
            raise Broken("exactly once", f"submit {answer.tag} is job {found.data.spec.job_id}, users were told {jobs}")

    def read(self, answer: Answered, revision: int) -> None:
        """Take in that a job was read with `after` the position of an acknowledgement.

        Args:
            answer: acknowledged something about the job.
            revision: of the job as it was read: position of the last event about it.

        Raises:
            Broken: what was acknowledged is not in it.
        """
        found = self._found.get((answer.kind, answer.tag))
        # What is asked of a job that has just ended changes nothing of it, not even its revision.
        if found is not None and not self._is_idle(found) and revision < found.position:
            what = f"{answer.kind} {answer.tag} is at position {found.position}, and was read at revision {revision}"
            raise Broken("read your writes", what)

    def _is_idle(self, event: Event) -> bool:
        """Whether the event has no effect, because the job had ended before it."""
        data = event.data
        if not isinstance(data, JobChanged | JobCancelRequested):
            return False
        return self._ends.get(data.job_id, event.position) < event.position


def _tagged(event: Event) -> tuple[Kind, str] | None:
    match event.data:
        case JobSubmitted(spec=spec) if spec.array is None or spec.array.array_id == spec.job_id:
            labels = ((spec.manifest or {}).get("metadata") or {}).get("labels") or {}
            return ("submit", labels[KEY]) if KEY in labels else None
        case JobChanged(priority=int(priority)):
            return "change", str(priority)
        case JobCancelRequested(reason=Requested(text=reason)) if reason.startswith("dst-"):
            return "delete", reason
        case JobCancelRequested(reason=Requested(text=reason)) if reason.startswith(WHOLE):
            return "delete array", reason
        case SettingsChanged(settings={"ratelimit_s": float(ratelimit_s)}):
            return "settings", f"{ratelimit_s:.6f}"
        case VirtualClustersApplied(cells=cells):
            members = next(iter(cells.virtual_clusters.values())).members
            return "virtual clusters", members[-1]
    return None
