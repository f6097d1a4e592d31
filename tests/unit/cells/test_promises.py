"""The promises of virtual clusters, over drawn operations: whatever is asked for, fails, ends or is reconfigured."""

from random import Random
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.cells.book_check import assert_consistent
from tests.unit.cells.brute_force import can_be_packed
from tests.unit.cells.drawn import Cluster, drawn_cluster, drawn_request
from tests.unit.cells.running import reconfigured
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangPreempts, GangStarts, GangWaits
from voda.cells.gangs import Gang, GangRequest
from voda.cells.health import set_node_bad, set_node_healthy
from voda.cells.preemption import cancel, end
from voda.cells.scheduling import decide
from voda.domain.errors import InvalidInput
from voda.domain.rng import rng_at

# One way of drawing serves Hypothesis, which shrinks, and the walks, which are many.
clusters = st.randoms(use_true_random=False).map(drawn_cluster)
requests = st.randoms(use_true_random=False).map(drawn_request)


class Promises(RuleBasedStateMachine):
    """A book to which everything happens that can."""

    def __init__(self) -> None:
        super().__init__()
        self.book: CellBook

    @initialize(cluster=clusters)
    def begin(self, cluster: Cluster) -> None:
        self.book = cluster.book()

    @rule(request=requests, starts=st.booleans())
    def ask(self, request: GangRequest, starts: bool) -> None:
        """A gang asks for cells; if it has a place, it takes or reserves it."""
        if request.name in self.book.gangs:
            return
        before = self.book.copy()
        try:
            decision = decide(self.book, request, request.sizes[0])
        except InvalidInput:
            return
        assert self.book == before, "a decision changed the book"
        assert decide(self.book, request, request.sizes[0]) == decision, "the same question had another answer"
        self._assert_promises(request, decision)
        adopt(self.book, request, decision, "worker")
        if isinstance(decision, GangStarts) and starts:
            start(self.book, request, decision.placement, slot=decision.slot, worker="worker")
            gang = self.book.gangs[request.name]
            assert len(gang.leafs) == sum(request.sizes), "a gang has a part of its cells"
            assert bool(gang.virtual) == request.is_guaranteed, "a planned guarantee was not kept"

    def _assert_promises(self, request: GangRequest, decision: Decision) -> None:
        if isinstance(decision, GangWaits):
            assert not self._must_run(request), "free quota was refused"
            return
        leafs = [self.book.topology.leaf_at[w.node, device] for w in decision.placement for device in w.devices]
        assert not any(self.book.bad[leaf] for leaf in leafs), "a bad cell is planned"
        losers = [self.book.gangs[name] for name in decision.downgrades]
        if isinstance(decision, GangPreempts):
            losers += [self.book.gangs[name] for name in decision.victims]
            assert request.is_guaranteed, "opportunistic work preempts"
        for gang in (gang for gang in losers if gang.virtual):
            assert gang.request.virtual_cluster == request.virtual_cluster, (
                "another virtual cluster's guarantee is taken"
            )
            assert gang.request.priority < request.priority, "an equal is preempted"

    def _must_run(self, request: GangRequest) -> bool:
        """Return whether each worker finds free leafs of the quota, none of them bound to a bad cell."""
        quotas, sizes = self.book.quotas, request.sizes
        if not request.is_guaranteed or self.book.bad_nodes:
            return False
        views = (
            [quotas.pin_views[request.virtual_cluster, request.pin]]
            if request.pin
            else [view for (cluster, _), view in quotas.views.items() if cluster == request.virtual_cluster]
        )
        rooms = [[len(quotas.trees.leafs[node]) - self.book.used[node] for node in view.nodes] for view in views]
        return any(can_be_packed(sizes, each) for each in rooms)

    @precondition(lambda self: self.book.gangs)
    @rule(index=st.integers(0, 99))
    def finish_one(self, index: int) -> None:
        """A gang ends, or gives up waiting."""
        gang = self._gang(index)
        if gang.is_waiting:
            cancel(self.book, gang.name)
        else:
            end(self.book, gang.name)

    @precondition(lambda self: self.book.gangs)
    @rule(index=st.integers(0, 99))
    def continue_one(self, index: int) -> None:
        """A worker of a gang that has cells asks again, and starts if it can."""
        request = self._gang(index).request
        try:
            decision = decide(self.book, request, request.sizes[-1])
        except InvalidInput:
            return
        adopt(self.book, request, decision, "late")
        if isinstance(decision, GangStarts):
            start(self.book, request, decision.placement, slot=decision.slot, worker="late")

    @rule(index=st.integers(0, 7), is_bad=st.booleans())
    def change_health(self, index: int, is_bad: bool) -> None:
        """A node fails, or is well again."""
        nodes = list(self.book.topology.leafs_on)
        change = set_node_bad if is_bad else set_node_healthy
        change(self.book, nodes[index % len(nodes)])

    @rule(cluster=clusters)
    def change_configuration(self, cluster: Cluster) -> None:
        """Topology and quotas change; what runs goes on where its devices still are."""
        before, fresh = self.book.copy(), cluster.book()
        again = reconfigured(self.book, fresh)
        assert self.book == before, "a trial of a reconfiguration changed the book"
        running = {name: gang for name, gang in before.gangs.items() if not gang.is_waiting}
        assert again.gangs.keys() == running.keys()
        for name, gang in running.items():
            places = {(worker.node, device) for worker in gang.placement for device in worker.devices}
            there = {(again.topology.nodes[leaf][0], again.topology.devices[leaf]) for leaf in again.gangs[name].leafs}
            assert there == places & again.topology.leaf_at.keys(), "a running gang lost cells"
        self.book = again

    def take_drawn_step(self, random: Random) -> None:
        """Do one of all that can happen."""
        kind = random.randrange(20)
        if self.book.gangs and kind < 8:
            random.choice((self.finish_one, self.continue_one))(index=random.randrange(100))
        elif kind < 11:
            self.change_health(index=random.randrange(8), is_bad=random.choice((True, False)))
        elif kind < 12 and random.randrange(8) == 0:
            self.change_configuration(cluster=drawn_cluster(random))
        else:
            self.ask(request=drawn_request(random), starts=random.choice((True, False)))

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "book"):
            assert_consistent(self.book)

    def _gang(self, index: int) -> Gang:
        gangs = list(self.book.gangs.values())
        return gangs[index % len(gangs)]


class NoSharingAnomaly(RuleBasedStateMachine):
    """One shared cluster, and for each virtual cluster one of its own: same cells, nobody else.

    Whatever a gang preempts leaves at once, in both: what is compared is who must wait for whom.
    """

    @initialize(cluster=clusters)
    def begin(self, cluster: Cluster) -> None:
        self.shared = cluster.book()
        self.private = {name: cluster._replace(quotas={name: quotas}).book() for name, quotas in cluster.quotas.items()}

    @rule(request=requests)
    def ask(self, request: GangRequest) -> None:
        """A gang that would start in its private cluster starts in the shared one."""
        private = self.private[request.virtual_cluster]
        # A gang that is over in one cluster may still run in the other.
        if any(request.name in book.gangs for book in (self.shared, *self.private.values())):
            return
        if not request.is_guaranteed:
            _start_at_once(self.shared, request)
        elif _start_at_once(private, request):
            assert _start_at_once(self.shared, request), "a gang waits that would start in a private cluster"

    @rule(index=st.integers(0, 99))
    def finish_one(self, index: int) -> None:
        """A gang ends, in both clusters."""
        names = list(self.shared.gangs)
        if names:
            name = names[index % len(names)]
            for book in (self.shared, *self.private.values()):
                if name in book.gangs:
                    end(book, name)

    def take_drawn_step(self, random: Random) -> None:
        """Let a gang ask or, less often, end."""
        if random.randrange(10) < 3:
            self.finish_one(index=random.randrange(100))
        else:
            self.ask(request=drawn_request(random))

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "shared"):
            alone = {name for book in self.private.values() for name, gang in book.gangs.items() if gang.virtual}
            assert alone == {name for name, gang in self.shared.gangs.items() if gang.virtual}


def _start_at_once(book: CellBook, request: GangRequest) -> bool:
    """Return whether a gang starts, once all that it preempts has left."""
    try:
        decision = decide(book, request, request.sizes[0])
    except InvalidInput:
        return False
    adopt(book, request, decision, "worker")
    if isinstance(decision, GangPreempts):
        for name in decision.victims:
            end(book, name)
        decision = decide(book, request, request.sizes[0])
    if isinstance(decision, GangStarts):
        start(book, request, decision.placement, slot=decision.slot, worker="worker")
    return isinstance(decision, GangStarts)


def _run(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))


@pytest.mark.parametrize("machine", [Promises, NoSharingAnomaly])
def test_promises_when_a_thousand_operations_are_drawn_hold(machine: type[RuleBasedStateMachine]) -> None:
    _run(machine, examples=30, steps=35)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Promises, NoSharingAnomaly])
def test_promises_when_25_000_operations_are_drawn_hold(machine: type[RuleBasedStateMachine]) -> None:
    _run(machine, examples=500, steps=50)


WALKS: Final = 10
SEQUENCES: Final = 5_000
"""Of each walk: with two machines 100,000 sequences in all, of 12 operations."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(WALKS))
@pytest.mark.parametrize("machine", [Promises, NoSharingAnomaly])
def test_promises_when_a_hundred_thousand_sequences_are_drawn_hold(
    machine: type[Promises | NoSharingAnomaly], seed: int
) -> None:
    random = rng_at(seed, "promises")
    for number in range(SEQUENCES):
        walk = machine()
        walk.begin(cluster=drawn_cluster(random))
        try:
            for _ in range(12):
                walk.take_drawn_step(random)
            walk.promises_hold()
        except AssertionError as error:
            error.add_note(f"sequence {number} of seed {seed}")
            raise
