"""One life of one replica's way to one pool of the cluster, and what it has seen there.

Rule: whoever uses it is held to "GPUs are free when they are observed free": what is asked for must have been free in
the last answer that this very replica got, whatever the cluster is like by now.
"""

import asyncio
import contextvars
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Final

from tests.dst.cluster import TrueCluster
from tests.dst.wire import Trouble, Wire
from voda.cluster.attempts import Attempts
from voda.cluster.port import Notice, Observed
from voda.domain.errors import ClusterUnavailable
from voda.domain.job import JobSpec
from voda.domain.plan import Action, ResizeJob, StartJob, places

_TOLD_S: Final = 0.05
_LATE_S: Final = 60.0
_LAG_S: Final = 8.0
_AT_ONCE: Final = 16
_EMPTY: Final = Observed(nodes={}, workers={}, gpus_per_replica={})


class ClusterConnection:
    """A Cluster.

    Args:
        cluster: the truth.
        pool: that it shows.
        now: the replica's time.
        specs: job id -> spec, as the replica knows it.
        sinned: is told what no correct controller does.
        noted: is told of every action that arrives.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        cluster: TrueCluster,
        pool: str,
        loop: asyncio.AbstractEventLoop,
        chance: Random,
        trouble: Trouble,
        *,
        now: Callable[[], float],
        specs: Callable[[str], JobSpec | None],
        sinned: Callable[[str], None] = lambda text: None,
        noted: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.wire = Wire(loop, chance, trouble, "cluster", lambda why: ClusterUnavailable(f"the cluster: {why}"))
        self._cluster = cluster
        self._pool = pool
        self._loop = loop
        self._chance = chance
        self._trouble = trouble
        self._specs = specs
        self._sinned = sinned
        self._noted = noted
        self._seen = _EMPTY
        self._free: Counter[str] = Counter()
        """node -> GPUs that were free when last seen, less what was asked for since."""
        self._shown_since = 0.0
        self._watchers: dict[_Watcher, None] = {}
        self._attempts = Attempts(self.apply, self._tell, now, pool=pool, at_once=_AT_ONCE)
        self._nobody = contextvars.Context()
        cluster.listeners.append(self._hear)

    async def observe(self) -> Observed:
        """See Cluster.observe."""
        lags = self._chance.random() < self._trouble.share("cluster_lag")
        age_s = _LAG_S * self._chance.random() if lags else 0.0
        self._shown_since, self._seen = await self.wire.ask(lambda: self._look(age_s))
        self._free = _free(self._seen)
        return self._seen

    async def set_desired(self, actions: Sequence[Action]) -> float:
        """See Cluster.set_desired."""
        return await self._attempts.make(actions)

    async def apply(self, action: Action) -> None:
        """Begin one action, or raise why that is not done."""
        spec = self._specs(action.job_id)
        if spec is not None:
            self._hold_to_the_rule(action, spec.gpus_per_replica)
        await self.wire.ask(lambda: self._carry_out(action, spec), is_change=True)

    async def watch(self) -> AsyncIterator[Notice]:
        """See Cluster.watch; what happens while nobody watches is told to nobody."""
        watcher = _Watcher()
        self._watchers[watcher] = None
        try:
            while True:
                while watcher.told:
                    yield watcher.told.popleft()
                if self.wire.is_cut:
                    raise ClusterUnavailable("the watch broke")
                watcher.woken.clear()
                await watcher.woken.wait()
        finally:
            self._watchers.pop(watcher, None)

    def sever(self) -> None:
        """Let nothing pass any more; what is under way to the cluster still arrives."""
        self.wire.is_dead = True
        if self._hear in self._cluster.listeners:
            self._cluster.listeners.remove(self._hear)

    def stir(self) -> None:
        """Have watchers notice that the connection broke, or is there again."""
        for watcher in self._watchers:
            watcher.woken.set()

    # ---- inside

    def _look(self, age_s: float) -> tuple[float, Observed]:
        since_s, observed = self._cluster.observed(self._pool, age_s=age_s)
        if since_s < self._shown_since:
            # Late, but never back: who has seen something does not see what was before it.
            return self._shown_since, self._seen
        return since_s, observed

    def _carry_out(self, action: Action, spec: JobSpec | None) -> None:
        self._noted(f"apply {_said(action)}")
        self._cluster.apply(action, spec)

    def _hold_to_the_rule(self, action: Action, gpus: int) -> None:
        held = self._seen.workers.get(action.job_id, {})
        wanted: Mapping[int, str] = {}
        match action:
            case StartJob() | ResizeJob():
                wanted = {index: node for index, node in places(action.nodes).items() if held.get(index) != node}
        for node, workers in Counter(wanted.values()).items():
            if workers * gpus > self._free[node]:
                self._sinned(
                    f"observed free: {_said(action)} needs {workers * gpus} GPUs on {node}, and"
                    f" {max(0, self._free[node])} were free there when last seen"
                )
            self._free[node] -= workers * gpus

    def _hear(self, pool: str, notice: Notice) -> None:
        if pool != self._pool or self.wire.is_cut:
            return
        share, chance = self._trouble.share, self._chance
        for watcher in self._watchers:
            if not self._trouble.is_any:
                self._in_order(watcher, notice)
            elif chance.random() >= share("notices_lost"):
                self._send(watcher, notice)

    def _tell(self, notice: Notice) -> None:
        """Tell watchers what happened on this side of the wire."""
        for watcher in self._watchers:
            watcher.tell(notice)

    def _send(self, watcher: "_Watcher", notice: Notice) -> None:
        share, chance = self._trouble.share, self._chance
        late_s = _LATE_S * chance.random() ** 2 if chance.random() < share("notices_late") else 0.0
        late_s += 3.0 * chance.random() if chance.random() < share("notices_mixed") else 0.0
        if late_s:
            self._loop.call_later(late_s, watcher.tell, notice, context=self._nobody)
        else:
            self._in_order(watcher, notice)
        if chance.random() < share("notices_twice"):
            again_s = _TOLD_S + late_s + 5.0 * chance.random() ** 2
            self._loop.call_later(again_s, watcher.tell, notice, context=self._nobody)

    def _in_order(self, watcher: "_Watcher", notice: Notice) -> None:
        watcher.coming.append(notice)
        self._loop.call_later(_TOLD_S, watcher.arrive, context=self._nobody)


class _Watcher:
    """One call of watch."""

    def __init__(self) -> None:
        self.told: deque[Notice] = deque()
        self.coming: deque[Notice] = deque()
        """On their way, none of which overtakes another."""
        self.woken = asyncio.Event()

    def arrive(self) -> None:
        self.tell(self.coming.popleft())

    def tell(self, notice: Notice) -> None:
        self.told.append(notice)
        self.woken.set()


def _free(observed: Observed) -> Counter[str]:
    free = Counter({name: node.usable_gpus for name, node in observed.nodes.items()})
    for job_id, workers in observed.workers.items():
        for node in workers.values():
            free[node] -= observed.gpus_per_replica[job_id]
    return free


def _said(action: Action) -> str:
    shape = getattr(action, "nodes", None) or getattr(action, "reason", "")
    return f"{type(action).__name__} {action.job_id} {shape}".strip()
