"""A sound log and the journals that go with it, as plain values that can be damaged before they are written.

Rule: built without voda, so that checker and story share no mistake of it.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.torture.evidence import GENESIS, digest, sealed

MANIFEST = {"kind": "MPIJob", "metadata": {"name": "a"}}
Record = dict[str, Any]
_ids = count(1)


@dataclass
class Story:
    """What happened, fact by fact, and what the clients wrote down; may be damaged before it is put on the disk."""

    facts: list[Record] = field(default_factory=list)
    journals: dict[str, list[Record]] = field(default_factory=dict)
    edits: list[Callable[[list[bytes]], None]] = field(default_factory=list)
    """Done to the lines of the log's segment."""

    def written(self, folder: Path) -> tuple[Path, Sequence[Path]]:
        """Write log and journals, and return their paths."""
        lines = _lines(self.facts)
        for edit in self.edits:
            edit(lines)
        log = folder / "log"
        log.mkdir(exist_ok=True)
        (log / "voda-000000000001-000000000017-00.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
        paths = []
        for client, records in self.journals.items():
            paths.append(folder / f"{client}.jsonl")
            paths[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
        return log, paths

    def fact(self, type_: str, index: int = 0) -> Record:
        """Return the fact of a type, the first one by default."""
        return [fact for fact in self.facts if fact["type"] == type_][index]

    def answer(self, client: str, operation: int) -> Record:
        """Return the answer to an operation."""
        return next(one for one in self.journals[client] if one["op"] == operation and one["kind"] == "answered")


def a_sound_story() -> Story:
    """Return a log in which two leaders ran two jobs of two users, each event at the instant of its position."""
    story = Story()
    add = story.facts.append
    add(a_fact("node.n1", "node.joined", {"node": {"name": "n1", "gpus": 2}}))
    add(a_fact("leadership", "leader.elected", {"pool": "", "leader": "r1"}, epoch=1))
    add(a_fact("decisions.default", "leader.elected", {"pool": "default", "leader": "r1"}, epoch=1))
    add(a_submission("a", "ann", "k1"))
    add(a_submission("b", "bob", "k1"))
    add(a_fact("decisions.default", "plan.adopted", {"pool": "default", "number": 1, "based_on": 5}, epoch=1))
    add(a_fact("job.a", "worker.started", {"job_id": "a", "workers": {"0": "n1"}}))
    add(a_fact("job.a", "job.changed", {"job_id": "a", "priority": 105}))
    add(a_fact("leadership", "leader.elected", {"pool": "", "leader": "r2"}, epoch=2))
    add(a_fact("decisions.default", "leader.elected", {"pool": "default", "leader": "r2"}, epoch=2))
    add(a_fact("job.b", "worker.started", {"job_id": "b", "workers": {"0": "n1"}}))
    reason = {"kind": "requested", "by": "bob", "text": "bob operation 2"}
    add(a_fact("job.b", "job.cancel_requested", {"job_id": "b", "reason": reason}))
    add(a_fact("job.b", "worker.exited", {"job_id": "b", "workers": [0]}))
    add(a_fact("job.b", "job.canceled", {"job_id": "b"}))
    add(a_fact("job.a", "job.completed", {"job_id": "a"}))
    add(a_fact("job.a", "worker.exited", {"job_id": "a", "workers": [0]}))
    add(a_fact("decisions.default", "plan.adopted", {"pool": "default", "number": 2, "based_on": 16}, epoch=2))
    ids = [[position, fact["event_id"]] for position, fact in enumerate(story.facts, start=1)]
    story.journals["ann"] = [
        asked(1, 3.5, does="submit", user="ann", name="a", key="k1", manifest=digest(MANIFEST)),
        told(1, 4.4, **a_job("a", 4)),
        asked(2, 7.5, does="change", job_id="a", priority=105),
        {**told(2, 7.7), "outcome": "unknown"},
        asked(2, 7.8, attempt=1, does="change", job_id="a", priority=105),
        told(2, 8.4, attempt=1, **a_job("a", 8, priority=105)),
        asked(3, 16.5, does="read", job_id="a", after=8),
        told(3, 16.6, **a_job("a", 16, priority=105, phase="Completed")),
    ]
    story.journals["bob"] = [
        asked(1, 4.5, does="submit", user="bob", name="b", key="k1", manifest=digest(MANIFEST)),
        told(1, 5.4, **a_job("b", 5)),
        asked(2, 11.5, does="delete", job_id="b", reason="bob operation 2"),
        told(2, 12.4, **a_job("b", 12)),
        asked(3, 13.5, does="page", after=2),
        told(3, 13.6, events=ids[2:13], last_position=13),
        asked(4, 14.5, does="change", job_id="b", priority=405),
        {**told(4, 14.6), "outcome": "refused", "status": 409},
        asked(5, 16.5, does="submit", user="bob", name="c", key="k5", manifest=digest(MANIFEST)),
    ]
    return story


def _lines(facts: Sequence[Record]) -> list[bytes]:
    heads: dict[str, Record] = {}
    lines: list[bytes] = []
    for position, fact in enumerate(facts, start=1):
        head = heads.get(fact["stream"], {"version": 0, "hash": GENESIS})
        body = {**fact, "version": head["version"] + 1, "prev": head["hash"]}
        event = json.dumps(body, separators=(",", ":")).encode()
        heads[fact["stream"]] = {"epoch": 0, "hash": sealed(event), "version": head["version"] + 1}
        lines.append(b'{"position":%d,"hash":"%b","event":%b}\n' % (position, sealed(event).encode(), event))
    header = {"after": 0, "format": "voda-segment", "heads": {}, "last": len(facts), "previous": "", "version": 1}
    return [json.dumps(header).encode() + b"\n", *lines]


def a_fact(stream: str, type_: str, data: Record, *, epoch: int = 0) -> Record:
    return {"stream": stream, "event_id": f"e{next(_ids)}", "type": type_, "epoch": epoch, "data": data}


def a_submission(job: str, user: str, key: str) -> Record:
    spec = {"job_id": job, "name": job, "user": user, "manifest": MANIFEST}
    fact = a_fact(f"job.{job}", "job.submitted", {"spec": spec})
    owned = f"{user}\n{key}".encode()
    return {**fact, "event_id": f"submit-{sealed(owned)[:32]}"}


def asked(operation: int, at: float, *, attempt: int = 0, **wish: object) -> Record:
    return {"kind": "asked", "op": operation, "try": attempt, "at": at, **wish}


def told(operation: int, at: float, *, attempt: int = 0, **told: object) -> Record:
    return {"outcome": "acknowledged", **told, "kind": "answered", "op": operation, "try": attempt, "at": at}


def a_job(job: str, revision: int, *, priority: int = 0, phase: str = "Running") -> Record:
    shown = {"job_id": job, "revision": revision, "priority": priority, "phase": phase, "is_canceling": False}
    return {**shown, "position": revision}
