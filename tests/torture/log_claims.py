"""What every log must show, whoever wrote it: chain, epochs, lives of jobs, GPUs. Each claim yields what breaks it.

Rule: pure, and nothing of voda.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from tests.torture.evidence import GENESIS, Entry, Log, of_type, sealed

Claim = Callable[[Log], Iterator[str]]
ENDS: Mapping[str, str] = {"job.completed": "Completed", "job.failed": "Failed", "job.canceled": "Canceled"}
"""Types of the events that end a job, and the phase they lead to."""


def is_readable(log: Log) -> Iterator[str]:
    """Every line behind the header is an event."""
    yield from log.problems


def has_no_gaps(log: Log) -> Iterator[str]:
    """Positions count from 1 without gaps."""
    for expected, entry in enumerate(log.entries, start=1):
        if entry.position != expected:
            yield f"position {entry.position} where {expected} was expected"
            return


def is_chained(log: Log) -> Iterator[str]:
    """Every event has its hash, its stream's next version and its predecessor's hash; the header counts them."""
    heads: dict[str, tuple[int, str]] = {}
    for entry in log.entries:
        version, prev = heads.get(entry.stream, (0, GENESIS))
        if sealed(entry.body) != entry.hash:
            yield f"position {entry.position}: the hash is not that of the event"
        if entry.event.get("version") != version + 1:
            yield f"position {entry.position}: version {entry.event.get('version')} of {entry.stream} follows {version}"
        if entry.event.get("prev") != prev:
            yield f"position {entry.position}: it does not follow the event before it in {entry.stream}"
        heads[entry.stream] = (version + 1, entry.hash)
    if log.last != len(log.entries):
        yield "the header is not that of these events"


def has_each_event_once(log: Log) -> Iterator[str]:
    """No event id is there twice."""
    seen: dict[str, int] = {}
    for entry in log.entries:
        event_id = str(entry.event.get("event_id"))
        if event_id in seen:
            yield f"event {event_id} is at position {seen[event_id]} and at {entry.position}"
        seen[event_id] = entry.position


def has_one_leader_per_epoch(log: Log) -> Iterator[str]:
    """An epoch is claimed by one leader, in each stream by a higher one than before, and decides only there."""
    leaders: dict[tuple[str, int], str] = {}
    claimed: dict[str, int] = {}
    is_claimed_first = any(entry.stream == "leadership" for entry in log.entries)
    for entry in log.entries:
        family = entry.stream.partition(".")[0]
        if family not in ("decisions", "leadership"):
            if entry.epoch:
                yield f"position {entry.position}: {entry.type} in {entry.stream} bears epoch {entry.epoch}"
            continue
        before = claimed.get(entry.stream, 0)
        if entry.type == "leader.elected":
            if entry.epoch <= before:
                yield f"position {entry.position}: epoch {entry.epoch} of {entry.stream} follows epoch {before}"
            claimed[entry.stream] = max(entry.epoch, before)
            # Without a stream of claims every pool counts epochs of its own.
            scope = "" if is_claimed_first else entry.stream
            leader = str(entry.data.get("leader"))
            if (other := leaders.setdefault((scope, entry.epoch), leader)) != leader:
                yield f"position {entry.position}: epoch {entry.epoch} is led by {leader} and by {other}"
        elif entry.epoch != before:
            yield f"position {entry.position}: {entry.type} of epoch {entry.epoch} where epoch {before} leads"


def has_one_live_job_per_name(log: Log) -> Iterator[str]:
    """A job begins once, ends once, and has its name for itself meanwhile."""
    live: dict[tuple[str, str], str] = {}
    names: dict[str, tuple[str, str]] = {}
    ended: dict[str, int] = {}
    for entry in log.entries:
        job = entry.job_id
        if not job:
            continue
        if entry.type == "job.submitted":
            spec = entry.data.get("spec", {})
            name = (str(spec.get("namespace", "default")), str(spec.get("name")))
            if job in names:
                yield f"position {entry.position}: job {job} is submitted again"
            if spec.get("job_id") != job:
                yield f"position {entry.position}: job {spec.get('job_id')} is submitted in the stream of {job}"
            if name in live:
                yield f"position {entry.position}: job {job} takes the name {name[1]} of {live[name]}, which is live"
            names[job], live[name] = name, job
        elif job not in names:
            yield f"position {entry.position}: {entry.type} of job {job}, which was not submitted"
            return
        elif entry.type in ENDS:
            if job in ended:
                yield f"position {entry.position}: job {job} ends again; it ended at {ended[job]}"
            ended[job] = entry.position
            if live.get(names[job]) == job:
                del live[names[job]]


def has_an_end_for_every_job(log: Log) -> Iterator[str]:
    """Every job that was submitted ended."""
    ended = {entry.job_id for entry in of_type(log, *ENDS)}
    for entry in of_type(log, "job.submitted"):
        if entry.job_id not in ended:
            yield f"job {entry.job_id}, submitted at position {entry.position}, has not ended"


def leaks_no_gpu(log: Log) -> Iterator[str]:
    """No node ever holds more than it has, no worker starts or exits twice, and none is left at the end."""
    rooms: dict[str, int] = {}
    sizes: dict[str, int] = {}
    held: dict[str, dict[int, str]] = defaultdict(dict)
    for entry in log.entries:
        job = entry.job_id
        match entry.type:
            case "node.joined" | "node.changed":
                node = entry.data.get("node", {})
                rooms[str(node.get("name"))] = int(node.get("gpus", 0))
            case "job.submitted":
                sizes[job] = int(entry.data.get("spec", {}).get("gpus_per_replica", 1))
            case "worker.started":
                workers = {int(index): str(node) for index, node in entry.data.get("workers", {}).items()}
                yield from _twice(entry, held[job], workers)
                held[job] |= workers
                yield from _overfull(entry, rooms, sizes, held)
            case "worker.exited":
                for index in entry.data.get("workers", ()):
                    if held[job].pop(index, None) is None:
                        yield f"position {entry.position}: worker {index} of {job} exits, which did not run"
    for job, workers in held.items():
        if workers:
            yield f"job {job} holds {len(workers)} workers at the end"


def _twice(entry: Entry, held: Mapping[int, str], workers: Mapping[int, str]) -> Iterator[str]:
    for index in sorted(workers.keys() & held.keys()):
        yield f"position {entry.position}: worker {index} of {entry.job_id} starts, which runs"


def _overfull(
    entry: Entry, rooms: Mapping[str, int], sizes: Mapping[str, int], held: Mapping[str, Mapping[int, str]]
) -> Iterator[str]:
    used: dict[str, int] = defaultdict(int)
    for job, workers in held.items():
        for node in workers.values():
            used[node] += sizes.get(job, 1)
    for node, gpus in used.items():
        if gpus > rooms.get(node, 0):
            yield f"position {entry.position}: node {node} holds {gpus} GPUs and has {rooms.get(node, 0)}"


CLAIMS: Mapping[str, Claim] = {
    "every line can be read": is_readable,
    "positions have no gaps": has_no_gaps,
    "hashes, versions and chain fit": is_chained,
    "every event is there once": has_each_event_once,
    "one leader per epoch, no decision of a former one": has_one_leader_per_epoch,
    "one live job per name": has_one_live_job_per_name,
    "every job ended": has_an_end_for_every_job,
    "no GPU leaked or lent twice": leaks_no_gpu,
}
