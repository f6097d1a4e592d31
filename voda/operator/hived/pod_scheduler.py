"""Filters, preempts and binds pods with HiveD's annotations; what changes is in the log before kube-scheduler knows it.

1. Only the leader answers, once it knows the pods that were bound before. 2. A pod is decided on in each pool with
virtual clusters until one has a node for it. 3. Its cells are recorded under the version of the log at which that was
decided, so that no two replicas give the same cells. 4. It waits while workers that the plan no longer has there leave.

Rule: one pod is decided on at a time; a decision that could not be recorded is forgotten.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from voda.application.journal import JournalView
from voda.cells.book import CellBook
from voda.clock import Clock
from voda.domain.errors import (
    ClusterUnavailable,
    InvalidInput,
    NotAllowed,
    NotFound,
)
from voda.domain.reasons.pods import PodGone
from voda.events.envelope import Event, Fact
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    read_pod,
)
from voda.hived.extender import refused
from voda.hived.pod_request import HivedPod, read_request
from voda.log.store import EventStore
from voda.operator.hived.pods import ScheduledPods
from voda.operator.hived.pool_book import PoolBook

_log = logging.getLogger(__name__)


class PodScheduler:
    """HiveD's extender over all pools; used on one event loop."""

    def __init__(
        self,
        *,
        store: EventStore,
        clock: Clock,
        view: JournalView,
        pods: ScheduledPods,
        not_leading: Callable[[], str],
    ) -> None:
        """`not_leading` returns why this replica does not answer, one sentence; empty where it leads."""
        self.pods = pods
        self.clock = clock
        self.view = view
        self.is_ready = False
        """Whether the pods that were bound before are known; the leader sees to it (pod_watch.py)."""
        self.refused: set[str] = set()
        """Uids of pods that got no node: kube-scheduler asks again only when something changes that it sees."""
        self._store = store
        self._not_leading = not_leading
        self._books: dict[str, PoolBook] = {}
        self._turn = asyncio.Lock()

    async def filter(self, arguments: ExtenderArgs) -> ExtenderFilterResult:
        """Return the node for a pod, or why there is none.

        Raises:
            InvalidInput: what came is no pod, or its request can never be met.
            NotAllowed: its user is no member of its virtual cluster.
            ClusterUnavailable: this replica does not lead.
            StoreUnavailable: the log does not answer.
        """
        pod = read_pod(arguments.pod, HivedPod)
        async with self.turn():
            answer = await self._filter(pod, arguments.names)
            if not answer.node_names:
                self.refused.add(pod.metadata.uid)
            return answer

    async def preempt(self, arguments: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Return the pods that must leave for a pod; raises as `filter`."""
        pod = read_pod(arguments.pod, HivedPod)
        async with self.turn():
            for book in self._candidates(pod):
                victims = book.extender().preempt(pod, arguments.names)
                await self._record(book)
                if victims.node_name_to_meta_victims:
                    book.preempting[pod.metadata.uid] = (pod, arguments.names)
                    return victims
        return ExtenderPreemptionResult()

    async def bind(self, arguments: ExtenderBindingArgs) -> None:
        """Bind a pod to the node of its cells.

        Raises:
            ClusterUnavailable: this replica does not lead.
            NotFound: the pod is gone, or has no cells.
            WrongState: it is elsewhere.
        """
        self.refuse_unless_leading()
        key, uid = f"{arguments.podnamespace}/{arguments.podname}", arguments.poduid
        annotations = self._annotations(arguments)
        try:
            await self.pods.bind(key, uid, arguments.node, annotations)
        except NotFound:
            await self.release(uid, PodGone(was_to_be_bound=True))
            raise

    def books(self) -> Sequence[CellBook]:
        """Return the books of the pools with virtual clusters; raises ClusterUnavailable where this does not lead."""
        self.refuse_unless_leading()
        return [book.extender().book for book in self.pool_books()]

    def pool_books(self) -> Sequence[PoolBook]:
        """Return the books of the pools with virtual clusters."""
        cluster = self.view.cluster
        names = [pool for pool in cluster.pools() if cluster.cells(pool) is not None]
        return [self._books.setdefault(name, PoolBook(name, self.view)) for name in names]

    def known_pods(self) -> Mapping[str, str]:
        """Return uid -> `namespace/name` of pods that have cells, or wait for some."""
        found: dict[str, str] = {}
        for book in self.pool_books():
            extender = book.extender()
            found |= {uid: pod.key for uid, pod in extender.waiting.items()}
            found |= {uid: place.key for uid, place in extender.places.items()}
            found |= {uid: pod.key for uid, (pod, _) in book.preempting.items()}
        return found

    def see(self, event: Event) -> None:
        """Note an event of the log, once the view has folded it."""
        for book in self._books.values():
            book.see(event)

    def forget(self) -> None:
        """Forget what is in no log: another replica led meanwhile."""
        self.is_ready = False
        self._books.clear()

    def refuse_unless_leading(self) -> None:
        """Raise ClusterUnavailable where another replica answers."""
        if reason := self._not_leading():
            raise ClusterUnavailable(f"pods are scheduled by the replica that leads: {reason}")
        if not self.is_ready:
            raise ClusterUnavailable("this replica has just begun to lead: try again in a moment")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let nobody else decide for the length of the block."""
        self.refuse_unless_leading()
        async with self._turn, self._whole_books():
            yield

    async def release(self, uid: str, reason: PodGone) -> None:
        """Note that a pod is gone."""
        async with self._turn, self._whole_books():
            for book in self.pool_books():
                book.preempting.pop(uid, None)
                book.extender().remove(uid, reason)
                await self._record(book)

    async def reclaim(self, pod: HivedPod) -> bool:
        """Give a pending pod cells that jobs are to leave; return whether kube-scheduler is to ask for it."""
        async with self._turn, self._whole_books():
            with suppress(InvalidInput, NotAllowed):
                for book in self._candidates(pod):
                    if (place := book.extender().places.get(pod.metadata.uid)) is not None:
                        return not book.leaving(place.placement[place.slot])
                    if book.extender().reclaim(pod, tuple(self.view.cluster.nodes(book.pool))):
                        return True
                    await self._record(book)
        return False

    async def adopt(self, pod: HivedPod, node: str) -> None:
        """Let a pod that was bound before use the cells of its annotations; raises InvalidInput where it cannot."""
        async with self._turn, self._whole_books():
            for book in self.pool_books():
                if node in self.view.cluster.nodes(book.pool):
                    book.extender().add_bound(pod)
                    await self._record(book)

    @asynccontextmanager
    async def _whole_books(self) -> AsyncIterator[None]:
        """Make the books anew from the log if the block fails half-way."""
        try:
            yield
        except InvalidInput:
            # It is refused before anything is changed.
            raise
        except BaseException:
            for book in self._books.values():
                book.forget()
            raise

    async def _filter(self, pod: HivedPod, names: Sequence[str]) -> ExtenderFilterResult:
        answers: list[ExtenderFilterResult] = []
        wrong: InvalidInput | None = None
        for book in self._candidates(pod):
            extender = book.extender()
            try:
                answer = extender.filter(pod, names)
            except InvalidInput as error:
                wrong = error
                continue
            await self._record(book)
            if (place := extender.places.get(pod.metadata.uid)) is None:
                answers.append(answer)
                continue
            self._stop_elsewhere(book, pod.metadata.uid)
            if leaving := book.leaving(place.placement[place.slot]):
                return refused(names, f"waits until workers of {', '.join(leaving[:5])} have left node {place.node}")
            return answer
        if not answers:
            raise wrong or InvalidInput("no pool has virtual clusters: apply some first (voda vc apply)")
        return next((answer for answer in answers if answer.failed_nodes), answers[0])

    def _candidates(self, pod: HivedPod) -> Sequence[PoolBook]:
        """Return the books of the pools in which a pod may get cells: that of its gang, if it has cells already."""
        request = read_request(pod)
        cluster, books = self.view.cluster, self.pool_books()
        # Whoever makes a pod can have written all that it says.
        user = pod.metadata.namespace
        for book in books:
            cells = cluster.cells(book.pool)
            name = request.gang.virtual_cluster
            if cells is not None and name in cells.virtual_clusters and not cells.has_member(name, user):
                raise NotAllowed(f"user {user} of pod {pod.key} is no member of virtual cluster {name}")
        return [book for book in books if request.gang.name in book.extender().book.gangs] or books

    def _annotations(self, arguments: ExtenderBindingArgs) -> dict[str, str]:
        for book in self.pool_books():
            extender = book.extender()
            if arguments.poduid in extender.places:
                return extender.bind(arguments)
        key = f"{arguments.podnamespace}/{arguments.podname}"
        raise NotFound(f"pod {key} ({arguments.poduid}) has no cells: filter it before it is bound")

    def _stop_elsewhere(self, placed: PoolBook, uid: str) -> None:
        for book in self._books.values():
            book.preempting.pop(uid, None)
            if book is not placed and uid in book.extender().waiting:
                book.extender().remove(uid)

    async def _record(self, book: PoolBook) -> None:
        """Record what the extender has changed."""
        facts = book.extender().take_facts()
        if not facts:
            return
        now, new_id = self.clock.now(), self.clock.new_id
        made = [Fact(data=fact, event_id=new_id(), recorded_at=now, actor="extender") for fact in facts]
        position = await self._store.append(facts[0].stream, book.version, made)
        await self.view.wait_for(position)
