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


CPUS = PodNeeds(requests={"cpu": 12_000})


def test_job_when_another_has_the_cpus_of_a_node_then_it_is_in_a_cell_of_another_node() -> None:
    state = a_pool({"vision": {"node": 2}, "speech": {"node": 2}}, nodes=NODES)
    for name in ("a", "b", "c"):
        state = replanned(submitted(state, name, "vision", needs=CPUS))
    on = [state.plan.placement[name] for name in ("a", "b", "c")]
    assert sorted(on) == [("n1",), ("n2",), ("n3",)]
    state = replanned(submitted(state, "d", "vision", needs=CPUS))
    assert "d" not in state.plan.placement


def test_worker_on_an_idle_cell_when_a_guaranteed_one_needs_its_cpus_then_it_leaves() -> None:
    state = a_pool({"vision": {"node": 2}, "speech": {"node": 1}}, nodes=NODES[:3])
    state = replanned(submitted(state, "lent", "speech", max_replicas=3, priority=-1, needs=CPUS))
    assert sorted(state.plan.placement["lent"]) == ["n1", "n2", "n3"]
    state = replanned(submitted(state, "own", "vision", needs=CPUS))
    own, lent = state.plan.placement["own"], state.plan.placement["lent"]
    assert (len(lent), {*own} & {*lent}) == (2, set())
    assert len(state.plan.guaranteed["own"]) == 1


def test_gang_when_others_have_cpus_of_each_node_then_its_minimum_is_spread_over_nodes() -> None:
    state = a_pool({"vision": {"node": 2}, "speech": {"node": 1}}, nodes=NODES[:3])
    for name in ("a", "b", "c"):
        state = replanned(submitted(state, name, "vision", needs=CPUS))
    half = PodNeeds(requests={"cpu": 5_000})
    state = replanned(submitted(state, "gang", "vision", min_replicas=3, max_replicas=3, needs=half))
    assert sorted(state.plan.placement["gang"]) == ["n1", "n2", "n3"]
