"""What the log must show of what the clients were told: nothing lost, nothing doubled, nothing made up, order kept.

Rule: pure, and nothing of voda. What a client does not know (no answer) may be in the log or not, but once at most.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from tests.torture.evidence import Entry, Log, Operation, digest, of_type, sealed
from tests.torture.log_claims import ENDS


class Case:
    """A log beside the operations of all clients."""

    def __init__(self, log: Log, operations: Sequence[Operation]) -> None:
        self.log = log
        self.operations = operations

    def of(self, does: str) -> Iterator[Operation]:
        """Yield the operations of a kind."""
        return (one for one in self.operations if one.does == does)

    def written(self, operation: Operation) -> Sequence[Entry]:
        """Return the events that this operation led to, in order."""
        return self._written.get(_mark_of(operation), ())

    def history(self, job_id: str) -> Sequence[Entry]:
        """Return the events of a job's stream, in order."""
        return self._histories.get(job_id, ())

    @cached_property
    def _written(self) -> Mapping[str, Sequence[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.log.entries:
            if mark := _mark_in(entry):
                found[mark].append(entry)
        return found

    @cached_property
    def marks(self) -> Mapping[str, Entry]:
        """What in the log came from clients: mark -> its first event."""
        return {mark: entries[0] for mark, entries in self._written.items()}

    @cached_property
    def _histories(self) -> Mapping[str, Sequence[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.log.entries:
            if entry.job_id:
                found[entry.job_id].append(entry)
        return found


Claim = Callable[[Case], Iterator[str]]


def loses_no_submission(case: Case) -> Iterator[str]:
    """An acknowledged job is in the log under the id and before the position that were told, as it was submitted."""
    for one in case.of("submit"):
        if (told := one.acknowledged) is None:
            continue
        entries = case.written(one)
        if not entries:
            yield f"{one.name}: acknowledged as job {told['job_id']}, and not in the log"
            continue
        entry = entries[0]
        spec = entry.data.get("spec", {})
        if entry.position > told["revision"]:
            yield f"{one.name}: acknowledged at position {told['revision']}, and in the log at {entry.position}"
        if entry.job_id != told["job_id"]:
            yield f"{one.name}: acknowledged as job {told['job_id']}, and in the log as {entry.job_id}"
        if (spec.get("name"), spec.get("user")) != (one.wish["name"], one.wish["user"]):
            yield f"{one.name}: job {entry.job_id} is recorded as {spec.get('name')} of {spec.get('user')}"
        if digest(spec.get("manifest")) != one.wish["manifest"]:
            yield f"{one.name}: job {entry.job_id} is recorded with another manifest"


def loses_no_change(case: Case) -> Iterator[str]:
    """An acknowledged change is in the log before the position that was told."""
    for one in case.of("change"):
        if (told := one.acknowledged) is None:
            continue
        if not any(entry.position <= told["revision"] for entry in case.written(one)):
            yield (
                f"{one.name}: priority {one.wish['priority']} of job {one.wish['job_id']} was acknowledged at"
                f" {told['revision']}, and is not in the log by then"
            )


def loses_no_deletion(case: Case) -> Iterator[str]:
    """Of an acknowledged deletion there is the request, unless the job had ended or was being canceled by then."""
    enough = {"job.cancel_requested", *ENDS}
    for one in case.of("delete"):
        if (told := one.acknowledged) is None:
            continue
        history = case.history(str(one.wish["job_id"]))
        if not any(entry.type in enough and entry.position <= told["revision"] for entry in history):
            yield f"{one.name}: job {one.wish['job_id']} was acknowledged as deleted at {told['revision']}, and was not"


def doubles_nothing(case: Case) -> Iterator[str]:
    """A key makes one job; nothing else is recorded more often than it was asked for."""
    for one in (*case.of("submit"), *case.of("change"), *case.of("delete")):
        entries = case.written(one)
        most = 1 if one.does == "submit" else len(one.tries)
        if len(entries) > most:
            yield f"{one.name}: recorded {len(entries)} times, at {[entry.position for entry in entries]}"
    jobs = Counter(str(told["job_id"]) for one in case.of("submit") if (told := one.acknowledged))
    for job, count in jobs.items():
        if count > 1:
            yield f"job {job} was acknowledged to {count} different submissions"


def makes_nothing_up(case: Case) -> Iterator[str]:
    """Whatever users did by the log was asked for, and was not refused."""
    asked = {_mark_of(one): one for one in case.operations if one.does in ("submit", "change", "delete")}
    for mark, entry in case.marks.items():
        one = asked.get(mark)
        if one is None:
            yield f"position {entry.position}: {entry.type} in {entry.stream} was asked for by nobody"
        elif one.is_surely_refused and not _is_without_effect(case, entry):
            yield f"position {entry.position}: {one.name} was refused, and is in the log"


def keeps_the_order(case: Case) -> Iterator[str]:
    """What was first asked for after something had been seen at a position is recorded behind that position."""
    instants, reached = _seen(case)
    for one in case.operations:
        entries = case.written(one)
        if not entries:
            continue
        before = bisect.bisect_left(instants, one.asked_at)
        if before and entries[0].position <= reached[before - 1]:
            yield (
                f"{one.name}: recorded at position {entries[0].position}, though position {reached[before - 1]} had"
                " been seen before it was asked for"
            )


def reads_what_is_written(case: Case) -> Iterator[str]:
    """Whoever asks for a job after a position sees it, and as the log has it."""
    for one in case.of("read"):
        job_id, after = str(one.wish["job_id"]), int(one.wish["after"])
        for each in one.tries:
            if each.outcome == "refused":
                yield f"{one.name}: job {job_id}, seen at position {after}, is refused with {each.answer.get('status')}"
        if (told := one.acknowledged) is None:
            continue
        history = _effective(case.history(job_id))
        known = [entry for entry in history if entry.position <= told["revision"]]
        missed = [entry.position for entry in history if told["revision"] < entry.position <= after]
        if missed or told["position"] < after:
            yield (
                f"{one.name}: asked for job {job_id} after {after}, and was shown it at {told['revision']} of"
                f" {told['position']}, without {missed}"
            )
        if told["priority"] != (priority := _priority(known)):
            yield f"{one.name}: job {job_id} at {told['revision']} has priority {priority}, not {told['priority']}"
        phase = next((ENDS[entry.type] for entry in known if entry.type in ENDS), "")
        if (told["phase"] if told["phase"] in ENDS.values() else "") != phase:
            yield f"{one.name}: job {job_id} at {told['revision']} is shown {told['phase']}, not {phase or 'live'}"


def skips_nothing(case: Case) -> Iterator[str]:
    """Pages of events are the log: each begins behind the position asked for, and none is left out."""
    ids = {entry.position: entry.event.get("event_id") for entry in case.log.entries}
    for one in case.of("page"):
        for each in one.tries:
            if each.outcome == "refused":
                yield f"{one.name}: events after {one.wish['after']} are refused with {each.answer.get('status')}"
        if (told := one.acknowledged) is None:
            continue
        after, shown = int(one.wish["after"]), told["events"]
        expected = [[position, ids.get(position)] for position in range(after + 1, after + 1 + len(shown))]
        if shown != expected:
            wrong = next((a for a, b in zip(shown, expected, strict=True) if a != b), None)
            yield f"{one.name}: events after {after} were shown as the log does not have them: {wrong}"


CLAIMS: Mapping[str, Claim] = {
    "no acknowledged job is lost": loses_no_submission,
    "no acknowledged change is lost": loses_no_change,
    "no acknowledged deletion is lost": loses_no_deletion,
    "nothing is doubled": doubles_nothing,
    "nothing is made up": makes_nothing_up,
    "order is kept": keeps_the_order,
    "reads see what is written": reads_what_is_written,
    "pages of events skip nothing": skips_nothing,
}


def _effective(history: Sequence[Entry]) -> Sequence[Entry]:
    """Return what a job shows: once it has ended only its workers change."""
    end = next((entry.position for entry in history if entry.type in ENDS), None)
    return [entry for entry in history if end is None or entry.position <= end or entry.type.startswith("worker.")]


def _is_without_effect(case: Case, entry: Entry) -> bool:
    """Return whether a change came behind the end of its job: such a one is refused for that, and changes nothing."""
    before = (each for each in case.history(entry.job_id) if each.position < entry.position)
    return entry.type == "job.changed" and any(each.type in ENDS for each in before)


def _mark_of(operation: Operation) -> str:
    """Return what in the log is this operation's alone."""
    wish = operation.wish
    match operation.does:
        case "submit":
            key = f"{wish['user']}\n{wish['key']}".encode()
            return f"submit-{sealed(key)[:32]}"
        case "change":
            return f"{wish['job_id']} priority {wish['priority']}"
        case "delete":
            return f"{wish['job_id']} because {wish['reason']}"
        case _:
            return ""


def _mark_in(entry: Entry) -> str:
    match entry.type:
        case "job.submitted":
            return str(entry.event.get("event_id"))
        case "job.changed":
            return f"{entry.job_id} priority {entry.data.get('priority')}"
        case "job.cancel_requested":
            return f"{entry.job_id} because {entry.data['reason'].get('text')}"
        case _:
            return ""


def _seen(case: Case) -> tuple[Sequence[float], Sequence[int]]:
    """Return instants, rising, and the highest position that anybody had been shown by each."""
    shown: list[tuple[float, int]] = []
    for one in case.operations:
        for each in one.tries:
            if each.outcome == "acknowledged":
                positions = (each.answer.get(name, 0) for name in ("position", "revision", "last_position"))
                shown.append((float(each.answer["at"]), max(positions)))
    shown.sort()
    instants = [at for at, _ in shown]
    reached: list[int] = []
    for _, position in shown:
        reached.append(max(position, reached[-1] if reached else 0))
    return instants, reached


def _priority(history: Sequence[Entry]) -> int:
    priority = 0
    for entry in history:
        if entry.type == "job.submitted":
            priority = int(entry.data.get("spec", {}).get("priority", 0))
        elif entry.type == "job.changed" and entry.data.get("priority") is not None:
            priority = int(entry.data["priority"])
    return priority


def submissions(log: Log) -> int:
    """Return how many jobs were submitted by the log."""
    return sum(1 for _ in of_type(log, "job.submitted"))
