"""Builders of test data: each takes what the test is about and fills in the rest."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from voda.domain.job import Job, JobSpec, Phase
from voda.domain.node import Node
from voda.domain.plan import Placement, Plan
from voda.domain.reasons.nodes import Said
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate
from voda.events.codec import encode_body, unseal
from voda.events.envelope import Event, Fact, Head, Sealed, hash_of
from voda.events.types import AnyFact, JobProgressed
from voda.log.store import Snapshot
from voda.projections.jobs.changes import new_job


def a_spec(job_id: str = "a", **fields: Any) -> JobSpec:
    """Return a spec; by default of one rigid worker."""
    return JobSpec(job_id=job_id, **fields)


def a_node(name: str = "n1", **fields: Any) -> Node:
    """Return a node; by default of four free GPUs."""
    return Node(name=name, **{"gpus": 4, **fields})


def a_job(job_id: str = "a", **fields: Any) -> Job:
    """Return a live job submitted at 0; fields of its spec are given as fields of the job."""
    spec = {name: fields.pop(name) for name in list(fields) if name in JobSpec.__struct_fields__}
    workers = fields.get("workers", {})
    said = {node: Said(text=why) if isinstance(why, str) else why for node, why in fields.pop("refusals", {}).items()}
    fields = {"refusals": said} | fields if said else fields
    fields = {"submitted_at": 0.0, "counted_at": 0.0, "phase": Phase.RUNNING if workers else Phase.WAITING, **fields}
    job = Job(spec=a_spec(job_id, **spec), **fields)
    return replace(job, has_anchor=new_job(job.spec, 0.0).has_anchor)


def a_state(
    *,
    jobs: Iterable[Job] = (),
    nodes: Iterable[Node] = (),
    placement: Placement | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    settings: Settings | None = None,
) -> ClusterState:
    """Return a view of the pool `default`, decided once with the given placement."""
    return ClusterState(
        pool="default",
        position=10,
        jobs={job.spec.job_id: job for job in jobs},
        nodes={node.name: node for node in nodes},
        plan=Plan(pool="default", number=1, based_on=9, placement=placement or {}),
        estimates=estimates or {},
        settings=settings or Settings(),
    )


class Log:
    """Events as a store would give them, made one by one without a store."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._heads: dict[str, Head] = {}

    def add(self, data: AnyFact, *, at: float, actor: str = "test") -> Event:
        """Record a fact and return its event."""
        position = len(self.events) + 1
        fact = Fact(data=data, event_id=f"e{position}", recorded_at=float(at), actor=actor)
        head = self._heads.get(data.stream, Head())
        sealed = seal(fact, stream=data.stream, head=head, epoch=0, position=position)
        self._heads[data.stream] = Head(head.version + 1, sealed.hash)
        event = unseal(sealed)
        self.events.append(event)
        return event

    def until(self, position: int) -> "Log":
        """Return a log of the events up to a position."""
        log = Log()
        log.events = self.events[:position]
        return log


def seal(fact: Fact, *, stream: str, head: Head, epoch: int, position: int) -> Sealed:
    """Return the event that follows `head` in `stream`, in its stored form."""
    body = encode_body(fact, stream=stream, version=head.version + 1, prev=head.hash, epoch=epoch)
    return Sealed(position, body, hash_of(body))


def a_fact(event_id: str = "1", *, at: float = 0.0, epochs_done: float = 1.0, **fields: Any) -> Fact:
    """Return a small fact about job `a`, for tests to whom it is all the same which."""
    data = JobProgressed(job_id="a", epochs_done=epochs_done, workers=1)
    return Fact(data=data, event_id=event_id, recorded_at=at, **fields)


def a_snapshot(name: str, position: int, state: bytes, *, heads: Mapping[str, Head] | None = None) -> Snapshot:
    """Return a snapshot whose checksum fits."""
    return Snapshot(name=name, position=position, state=state, state_hash=hash_of(state), heads=heads or {})
