"""The world of one run: log, Lease, cluster, replicas and what goes wrong between them, on one loop.

Rule: a run is a function of its Setup and its load; nothing else, not even the hash seed of the process, tells.
"""

import asyncio
import contextvars
import gc
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol

from msgspec import Struct, field

from tests.dst.agents import Agents
from tests.dst.chance import Chance
from tests.dst.cluster import TrueCluster
from tests.dst.door import Unanswered, answer_of, request_of
from tests.dst.faults import Fault
from tests.dst.injection import Injection
from tests.dst.lease import LeaseConnection, SharedLease
from tests.dst.log import LogConnection, SharedLog
from tests.dst.loop import OWNER, SeededLoop, run
from tests.dst.pods import PodConnection, TruePods
from tests.dst.replica import START_AT, Replica, ReplicaClock
from tests.dst.service import Service
from tests.dst.sight import ClusterConnection
from tests.dst.training import Training, training_of
from tests.dst.wire import Trouble
from tests.service import Answer
from voda.app.election import ElectionTimeouts
from voda.domain.errors import VodaError
from voda.domain.gpus import GpuDevice, Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import Event
from voda.telemetry.prometheus import PrometheusTelemetry

__all__ = ["Answer", "Outcome", "Setup", "Unanswered", "Watch", "World", "simulate"]

GPU_MIB: Final = 16_000
_TRAVEL_S: Final = 0.01
_TERMS: Final = (
    ElectionTimeouts(),
    ElectionTimeouts(duration_s=30.0, renew_deadline_s=20.0, retry_s=5.0),
    ElectionTimeouts(duration_s=60.0, renew_deadline_s=40.0, retry_s=10.0),
    ElectionTimeouts(duration_s=60.0, renew_deadline_s=40.0, retry_s=10.0),
)
"""Of an election, one of them by seed: the longer they are, the less a quiet hour costs."""
_POOLS: Final[Mapping[str, Mapping[str, int]]] = {"default": {"n1": 4, "n2": 4, "n3": 2}, "big": {"n4": 8, "n5": 4}}


class Setup(Struct, frozen=True, kw_only=True):
    """What a run is made of."""

    seed: int
    hours: float = 3.0
    """Virtual ones, the quiet time included."""
    quiet_s: float = 2_400.0
    """At the end, without faults."""
    replicas: int = 3
    pools: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: _POOLS)
    """pool -> node -> GPUs."""
    gpus: Mapping[str, int] = {}
    """Node -> GPUs that pods share, of the first pool; none: nobody shares."""
    faults: tuple[Fault, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    breach: str
    """The first one, a sentence; empty = none."""
    at_s: float
    """Virtual seconds it went on for."""
    digest: str
    """SHA-256 of the trace."""
    trace: Sequence[str]
    events: Sequence[Event]
    """The log."""
    steps: int
    """Of the loop."""


class Watch(Protocol):
    """Who checks, at the very instant; changes nothing, and raises AssertionError where something is wrong."""

    def committed(self, events: Sequence[Event], by: str) -> None:
        """Look at one append; `by` = the life of a replica, such as r0.2."""
        ...

    def changed(self, what: str) -> None:
        """Look at the cluster, of which something has changed."""
        ...


Load = Callable[["World"], Coroutine[Any, Any, None]]
"""What users do."""


class World:
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.chance = Chance(setup.seed)
        self.loop = SeededLoop(self.chance.of("order"))
        self.loop.circled = lambda: self.breach("circles: somebody does the same again and again without waiting")
        self.trace: list[str] = []
        self.breached = ""
        self.watches: Sequence[Watch] = ()
        self.is_quiet = False
        self.over = self.loop.create_future()
        """Done once the run is over, or a rule is broken."""
        self._began_s = self.loop.time()
        self._nobody = contextvars.Context()
        self._travel = self.chance.of("travel")
        self._paces = self.chance.of("paces")
        self.log = SharedLog(self._committed)
        is_enforced = self.chance.of("lease").random() < 0.5
        self.lease = SharedLease(self.loop.time, is_enforced=is_enforced, note=self.note)
        self._terms = self.chance.of("terms").choice(_TERMS)
        self.cluster = TrueCluster((*_nodes(setup.pools), *_gpu_nodes(setup)), self)
        self.pods = TruePods(lambda: START_AT + self.now_s)
        self.agents = Agents(self)
        telemetry = PrometheusTelemetry()
        self.replicas: Sequence[Replica] = [self._replica(f"r{number}", telemetry) for number in range(setup.replicas)]

    @property
    def pools(self) -> Sequence[str]:
        """Return the pools' names."""
        return tuple(self.setup.pools)

    # ---- time, trace and breaches

    @property
    def now_s(self) -> float:
        """Return the seconds since the beginning."""
        return self.loop.time() - self._began_s

    def later(self, span_s: float, act: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Have something done after a while, by nobody in particular."""
        return self.loop.call_later(span_s, act, *args, context=self._nobody)

    def draw(self, bounds: tuple[float, float]) -> float:
        """Draw a number between two."""
        return self._paces.uniform(*bounds)

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        self.trace.append(f"{self.now_s:13.6f} {text}")

    def breach(self, text: str) -> None:
        """Record that a rule is broken, and end the run; only the first one counts."""
        if not self.breached:
            self.breached = text
            self.note(f"BREACH {text}")
            if not self.over.done():
                self.over.set_result(None)

    # ---- what users do

    async def ask(  # noqa: PLR0913 - a request has its parts
        self,
        method: str,
        path: str,
        *,
        replica: str = "",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Return the answer of a replica.

        Args:
            method: of HTTP.
            path: with the query.
            replica: to ask; empty = any that serves, drawn.
            body: bytes as they are; anything else as JSON.
            headers: beside those that every request has.
            timeout_s: for how long the caller waits.

        Raises:
            Unanswered: the outcome is unknown.
        """
        asked = self._asked(replica)
        request = request_of(method, path, body=body, headers=headers)
        answered: asyncio.Future[bytes] = self.loop.create_future()
        self.later(_TRAVEL_S * self._travel.random(), self._enter, asked, request, answered)
        try:
            async with asyncio.timeout(timeout_s):
                said = await answered
        except TimeoutError:
            raise Unanswered(f"no answer within {timeout_s:g} s") from None
        await asyncio.sleep(_TRAVEL_S * self._travel.random())
        return answer_of(said)

    def _asked(self, name: str) -> Replica:
        if name:
            return next(replica for replica in self.replicas if replica.name == name)
        serving = [replica for replica in self.replicas if replica.is_serving]
        return self._travel.choice(serving or self.replicas)

    def _enter(self, replica: Replica, request: bytes, answered: "asyncio.Future[bytes]") -> None:
        if replica.service is None or replica.service.door is None:
            if not answered.done():
                answered.set_result(b"")
            return
        self.loop.call_soon(replica.service.door.enter, request, answered, context=replica.context)

    # ---- what the parts tell

    def _committed(self, events: Sequence[Event], by: str) -> None:
        for event in events:
            self.note(f"{by} {event.position} {event.stream} {event.type} e{event.epoch} {event.event_id[:8]}")
        self._watched(lambda watch: watch.committed(events, by))

    def changed(self, what: str) -> None:
        """Have the cluster looked at."""
        self.note(f"cluster {what}")
        self._watched(lambda watch: watch.changed(what))

    def sinned(self, by: str, text: str) -> None:
        """Hear that a replica did what no correct one does."""
        self.breach(f"{text} ({by})")

    def trained(self, job_id: str, epochs: int, workers: int, epoch_s: float | None) -> None:
        """Have a job report an epoch."""
        self.agents.report(job_id, epochs, workers, epoch_s)

    def training(self, spec: JobSpec) -> Training:
        """Return how a job begins."""
        return training_of(self.setup.seed, spec.job_id, spec.epochs)

    def _watched(self, look: Callable[[Watch], None]) -> None:
        if self.breached:
            return
        try:
            for watch in self.watches:
                look(watch)
        except AssertionError as error:
            self.breach(str(error) or repr(error))

    # ---- what it is built of

    def _replica(self, name: str, telemetry: PrometheusTelemetry) -> Replica:
        def build(life: str, trouble: Trouble, clock: ReplicaClock) -> Service:
            return self._service(life, name, trouble, clock, telemetry)

        return Replica(name, self.loop, build=build, chance=self.chance.of(name), note=self.note, failed=self.breach)

    def _service(
        self, life: str, name: str, trouble: Trouble, clock: ReplicaClock, telemetry: PrometheusTelemetry
    ) -> Service:
        chance = self.chance.of(f"wires {name}")

        def connect(pool: str) -> Callable[[Callable[[str], JobSpec | None]], ClusterConnection]:
            return lambda specs: ClusterConnection(
                self.cluster,
                pool,
                self.loop,
                chance,
                trouble,
                now=clock.now,
                specs=specs,
                sinned=lambda text: self.sinned(life, text),
                noted=lambda text: self.note(f"{life} {text}"),
            )

        drawn = self.chance.of(f"pods {name}")
        pods = PodConnection(self.pods, self.loop, drawn, trouble) if self.setup.gpus else None
        return Service(
            life,
            pods=pods,
            log=LogConnection(self.log, self.loop, chance, trouble, life),
            lease=LeaseConnection(self.lease, self.loop, chance, trouble),
            clusters={pool: connect(pool) for pool in self.pools},
            clock=clock,
            telemetry=telemetry,
            terms=self._terms,
        )


def simulate(
    setup: Setup,
    load: Load | None = None,
    watches: Callable[[World], Sequence[Watch]] = lambda world: (),
    finish: Callable[[World], Iterable[str]] = lambda world: (),
) -> Outcome:
    """Run a world to its end, or until a rule is broken.

    Args:
        setup: what it is made of.
        load: what users do; may end whenever it likes, and is ended with the run.
        watches: return who checks, once the world is built.
        finish: yields what is wrong at the end.
    """
    # The collector would run finalizers at instants that differ from process to process; and what was there before
    # need not be looked at by it afterwards.
    gc.disable()
    gc.freeze()
    logs = logging.getLogger("voda")
    before = logs.handlers, logs.propagate, logs.level
    try:
        world = World(setup)
        world.watches = watches(world)
        logs.handlers, logs.propagate = [_Unforeseen(world)], False
        logs.setLevel(logging.WARNING)
        world.loop.set_exception_handler(lambda loop, context: world.breach(_unhandled(context)))
        run(world.loop, _live(world, load, finish))
        world.note(f"over after {world.loop.steps} steps")
        outcome = Outcome(
            breach=world.breached,
            at_s=world.now_s,
            digest=sha256("\n".join(world.trace).encode()).hexdigest(),
            trace=tuple(world.trace),
            events=tuple(world.log.events),
            steps=world.loop.steps,
        )
        world.breach("over")
        logs.handlers = [logging.NullHandler()]
        world.loop.bury()
        world.loop.close()
        return outcome
    finally:
        logs.handlers, logs.propagate = before[0], before[1]
        logs.setLevel(before[2])
        gc.enable()
        gc.collect()
        gc.unfreeze()


async def _live(world: World, load: Load | None, finish: Callable[[World], Iterable[str]]) -> None:
    setup, injection = world.setup, Injection(world)
    for replica in world.replicas:
        replica.start_later(world.chance.of("starts").uniform(0.0, 3.0))
    for fault in setup.faults:
        world.later(fault.at_s, injection.begin, fault)
    end_s = setup.hours * 3600.0
    world.later(end_s - setup.quiet_s, injection.calm)
    world.later(end_s, lambda: None if world.over.done() else world.over.set_result(None))
    users = asyncio.ensure_future(load(world)) if load is not None else None
    if users is not None:
        users.add_done_callback(lambda task: _judge_load(world, task))
    await world.over
    if not world.breached:
        for text in finish(world):
            world.breach(text)
            break


def _judge_load(world: World, task: "asyncio.Future[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        world.breach(f"load: {error!r}")


class _Unforeseen(logging.Handler):
    """Hears what voda logs of errors that it did not foresee."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        owner = OWNER.get()
        life = owner.name if owner else "nobody"
        self._world.note(f"{life} logs {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, VodaError):
            self._world.breach(f"unforeseen: {life} logged {record.getMessage()}: {error!r}")


def _unhandled(context: Mapping[str, Any]) -> str:
    error = context.get("exception")
    return f"unforeseen: {context.get('message')}: {error!r}"


def _nodes(pools: Mapping[str, Mapping[str, int]]) -> Sequence[Node]:
    return [
        Node(name=name, pool=pool, gpus=Gpus(gpus)) for pool, nodes in pools.items() for name, gpus in nodes.items()
    ]


def _gpu_nodes(setup: Setup) -> Sequence[Node]:
    pool, gpu = next(iter(setup.pools)), GpuDevice(memory_mib=GPU_MIB)
    return [Node(name=name, pool=pool, gpus=Gpus(0), devices=(gpu,) * gpus) for name, gpus in setup.gpus.items()]
