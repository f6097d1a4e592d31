"""Jobs in virtual clusters go where nodes take their workers by labels, taints and resources."""

from tests.builders import a_node
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import a_pool, replanned, size, submitted
from voda.domain.node import PodNeeds, Taint, Toleration

HALVES = {"vision": {"node": 2}, "speech": {"node": 2}}
NODES = tuple(
    a_node(f"n{at}", labels={"zone": "ab"[at % 2]}, room={"cpu": 20_000}, taints=(Taint(key="t"),) if at == 4 else ())
    for at in range(1, 5)
)


def test_job_when_it_selects_a_zone_then_its_workers_are_there_alone() -> None:
    needs = PodNeeds(selector={"zone": "b"})
    state = replanned(submitted(a_pool(HALVES, nodes=NODES), "a", "vision", max_replicas=16, needs=needs))
    assert set(state.plan.placement["a"]) == {"n1", "n3"}
    assert size(state, "a") == 8


def test_job_when_no_node_takes_it_then_it_takes_nothing_from_others_and_says_why() -> None:
    state = replanned(submitted(a_pool(HALVES, nodes=NODES), "lent", "vision", max_replicas=16))
    assert size(state, "lent") == 12
    needs = PodNeeds(requests={"cpu": 30_000})
    after = replanned(submitted(state, "hungry", "speech", min_replicas=4, max_replicas=4, priority=9, needs=needs))
    assert after.plan.placement == state.plan.placement
    assert "a worker asks for 30 CPUs, and no node has more than 20 for it" in said(after.plan.reasons["hungry"])


def test_job_when_it_tolerates_a_taint_then_it_is_on_the_node_that_others_leave() -> None:
    needs = PodNeeds(tolerations=(Toleration(key="t", operator="Exists"),))
    state = replanned(submitted(a_pool(HALVES, nodes=NODES), "a", "vision", max_replicas=16, needs=needs))
    assert size(state, "a") == 16


def test_job_when_nodes_take_a_number_of_its_workers_then_its_minimum_is_spread_over_them() -> None:
    needs = PodNeeds(requests={"cpu": 10_000})
    fields = {"min_replicas": 6, "max_replicas": 6, "needs": needs}
    placement = replanned(submitted(a_pool(HALVES, nodes=NODES), "a", "vision", **fields)).plan.placement["a"]
    assert sorted(placement) == ["n1", "n1", "n2", "n2", "n3", "n3"]
