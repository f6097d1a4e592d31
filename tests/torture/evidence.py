"""What a torture leaves behind, as the checker reads it: a copy of the log and the journals of the clients.

Rule: nothing of voda is imported here or in any module that the checker imports; JSON and SHA-256 are the standard
library's, so that a mistake in voda's own reading cannot hide behind itself.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GENESIS = "0" * 64
_LINE = re.compile(rb'\{"position":(\d+),"hash":"([0-9a-f]{64})","event":(\{.*\})\}\n')


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the log. `body` is what its hash covers."""

    position: int
    hash: str
    body: bytes
    event: Mapping[str, Any]

    @property
    def type(self) -> str:
        """Word for what happened."""
        return str(self.event.get("type"))

    @property
    def stream(self) -> str:
        """Where it was written."""
        return str(self.event.get("stream"))

    @property
    def epoch(self) -> int:
        """Leadership epoch of who wrote it; 0 = of nobody who leads."""
        return int(self.event.get("epoch", 0))

    @property
    def data(self) -> Mapping[str, Any]:
        """The fact."""
        data: Mapping[str, Any] = self.event.get("data") or {}
        return data

    @property
    def job_id(self) -> str:
        """Job of whose stream it is; empty where it is no job's."""
        return self.stream.removeprefix("job.") if self.stream.startswith("job.") else ""


@dataclass(frozen=True, slots=True)
class Log:
    """A copy of the log as it lies there, and what is wrong with its lines."""

    entries: Sequence[Entry]
    last: int
    """Position of the last event, as the headers say."""
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Try:
    """One request of a client and what became of it; outcome `unknown` where no answer is in the journal."""

    asked: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def outcome(self) -> str:
        """Either `acknowledged`, `refused` or `unknown`."""
        return str(self.answer.get("outcome", "unknown"))


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client wanted, with all its tries; `does` is submit, change, delete, read or page."""

    client: str
    number: int
    does: str
    tries: Sequence[Try]

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.client} operation {self.number} ({self.does})"

    @property
    def wish(self) -> Mapping[str, Any]:
        """What was asked; the same in all tries."""
        return self.tries[0].asked

    @property
    def asked_at(self) -> float:
        """Steady clock of the machine, seconds: nothing of it was sent before."""
        return float(self.tries[0].asked["at"])

    @property
    def acknowledged(self) -> Mapping[str, Any] | None:
        """The answer that acknowledged it, if any."""
        return next((one.answer for one in self.tries if one.outcome == "acknowledged"), None)

    @property
    def is_surely_refused(self) -> bool:
        """Whether every try was refused, so that nothing of it may have been done."""
        return all(one.outcome == "refused" for one in self.tries)


def read_log(path: Path) -> Log:
    """Read the segments in a folder, however damaged."""
    entries: list[Entry] = []
    problems: list[str] = []
    last = 0
    segments = sorted(path.glob("voda-*.jsonl.gz"))
    for segment in segments:
        try:
            lines = gzip.decompress(segment.read_bytes()).splitlines(keepends=True)
        except (OSError, EOFError, zlib.error) as error:
            return Log(entries, last, [*problems, f"{segment.name} cannot be unpacked: {error}"])
        header = _decoded(lines[0]) if lines else None
        if header is None or (header.get("format"), header.get("after")) != ("voda-segment", len(entries)):
            return Log(entries, last, [*problems, f"{segment.name} is no segment that follows"])
        for number, line in enumerate(lines[1:], start=2):
            found = _LINE.fullmatch(line)
            event = _decoded(found[3]) if found else None
            if found and event is not None:
                entries.append(Entry(int(found[1]), found[2].decode(), found[3], event))
            else:
                problems.append(f"{segment.name}: line {number} is no event")
        last = header.get("last", 0)
        if len(entries) < last:
            problems.append(f"{segment.name}: there are fewer events than the header says: the tail is cut")
    return Log(entries, last, problems if segments else [f"{path.name} is no copy of a log"])


def read_journal(path: Path) -> tuple[Sequence[Operation], Sequence[str]]:
    """Read a client's journal; return its operations and what is wrong with its lines."""
    tries: dict[int, list[Try]] = {}
    problems: list[str] = []
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        record = _decoded(line)
        if record is None or not {"kind", "op", "try"} <= record.keys():
            # The last line of a client that was killed may be half written: it was not acted upon then.
            if number < len(lines) or line.endswith(b"\n"):
                problems.append(f"{path.name}: line {number} is no record")
            continue
        _add(tries.setdefault(record["op"], []), record, problems, f"{path.name}: line {number}")
    client = path.stem
    found = [Operation(client, op, str(made[0].asked["does"]), made) for op, made in sorted(tries.items()) if made]
    return found, problems


def sealed(body: bytes) -> str:
    """Return the hash that an event of this body must have."""
    return hashlib.sha256(body).hexdigest()


def digest(value: object) -> str:
    """Return a hash of plain values that does not depend on the order of keys."""
    return sealed(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def of_type(log: Log, *types: str) -> Iterator[Entry]:
    """Yield the events of these types."""
    return (entry for entry in log.entries if entry.type in types)


def _add(tries: list[Try], record: Mapping[str, Any], problems: list[str], where: str) -> None:
    if record["kind"] == "asked":
        if record["try"] != len(tries):
            problems.append(f"{where}: try {record['try']} follows try {len(tries) - 1}")
        tries.append(Try(record, {}))
    elif record["kind"] == "answered" and tries and not tries[-1].answer and record["try"] == len(tries) - 1:
        tries[-1] = Try(tries[-1].asked, record)
    else:
        problems.append(f"{where}: an answer to nothing that was asked")


def _decoded(text: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
