"""What virtual clusters guarantee and lend, case by case."""

from msgspec.structs import replace

from tests.builders import a_node
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import (
    SWITCHES,
    a_pool,
    ended,
    guaranteed,
    reached,
    replan,
    replanned,
    size,
    some_cells,
    submitted,
)
from voda.domain.cells import GangAllocation, GangPod, GangRequest, WorkerCells
from voda.domain.gpus import Gpus
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate, linear_speedup

FOUR = tuple(a_node(f"n{index}") for index in range(1, 5))
HALVES = {"vision": {"node": 2}, "speech": {"node": 2}}


def a_lending_pool() -> ClusterState:
    """Return a pool in which an elastic job of one virtual cluster has all cells, half of them idle ones."""
    return replanned(submitted(a_pool(HALVES, nodes=FOUR), "elastic", "vision", min_replicas=2, max_replicas=16))


def test_plan_when_cells_are_idle_lends_them_beyond_the_quota() -> None:
    state = a_lending_pool()
    assert (size(state, "elastic"), guaranteed(state, "elastic")) == (16, 8)
    assert (
        said(state.plan.reasons["elastic"])
        == "starts with 16 workers: 8 guaranteed by virtual cluster vision, 8 on idle cells"
    )
    assert sorted(zip(state.plan.placement["elastic"], state.plan.devices["elastic"], strict=True)) == [
        (f"n{node}", (device,)) for node in range(1, 5) for device in range(4)
    ]


def test_plan_when_a_guaranteed_gang_comes_shrinks_the_borrower_and_keeps_its_first_workers() -> None:
    before = a_lending_pool()
    state = replanned(submitted(before, "gang", "speech", min_replicas=4, max_replicas=4))
    assert (size(state, "gang"), guaranteed(state, "gang")) == (4, 4)
    assert (size(state, "elastic"), guaranteed(state, "elastic")) == (12, 8)
    assert state.plan.placement["elastic"][:8] == before.plan.placement["elastic"][:8]
    assert said(state.plan.reasons["elastic"]).endswith("virtual cluster speech took cells of 4 workers back")


def test_plan_when_a_guaranteed_gang_ends_lends_its_cells_again() -> None:
    state = replanned(submitted(a_lending_pool(), "gang", "speech", min_replicas=4, max_replicas=4))
    assert size(replanned(ended(state, "gang")), "elastic") == 16


def test_plan_when_reclaiming_shrinks_surplus_before_it_halts_an_opportunistic_job() -> None:
    # Both borrow two nodes of `speech`; only `elastic` can give one up and go on.
    state = submitted(a_pool(HALVES, nodes=FOUR), "rigid", "vision", priority=-1, min_replicas=4, max_replicas=4)
    state = replanned(submitted(state, "elastic", "vision", min_replicas=2, max_replicas=12))
    assert (size(state, "rigid"), size(state, "elastic")) == (4, 12)
    state = replanned(submitted(state, "gang", "speech", min_replicas=4, max_replicas=4))
    assert (size(state, "rigid"), size(state, "elastic"), size(state, "gang")) == (4, 8, 4)


def test_plan_when_reclaiming_halts_the_job_that_loses_least() -> None:
    state = a_pool(HALVES, nodes=FOUR)
    for job_id in ("dear", "cheap"):
        state = submitted(state, job_id, "vision", priority=-1, min_replicas=4, max_replicas=4)
    state = submitted(state, "own", "vision", min_replicas=8, max_replicas=8)
    costs = {"dear": 900.0, "cheap": 10.0}
    state = replace(
        state,
        estimates={
            job_id: Estimate(speedup=linear_speedup(4), resize_cost_s=cost_s) for job_id, cost_s in costs.items()
        },
    )
    state = replanned(state)
    assert (size(state, "dear"), size(state, "cheap"), size(state, "own")) == (4, 4, 8)
    state = replanned(submitted(state, "gang", "speech", min_replicas=4, max_replicas=4))
    assert (size(state, "dear"), size(state, "cheap"), size(state, "gang")) == (4, 0, 4)
    assert said(state.plan.reasons["cheap"]).startswith("preempted by job gang: it is opportunistic")


def test_plan_when_reclaiming_at_equal_loss_halts_the_youngest() -> None:
    state = a_pool(HALVES, nodes=FOUR)
    for job_id in ("old", "young"):
        state = submitted(state, job_id, "vision", priority=-1, min_replicas=4, max_replicas=4)
    state = replanned(submitted(state, "own", "vision", min_replicas=8, max_replicas=8))
    state = replanned(submitted(state, "gang", "speech", min_replicas=4, max_replicas=4))
    assert (size(state, "old"), size(state, "young"), size(state, "gang")) == (4, 0, 4)


def test_plan_when_a_higher_priority_comes_lets_the_lower_one_go_on_where_cells_are_idle() -> None:
    state = submitted(a_pool(HALVES, nodes=FOUR), "low", "vision", min_replicas=8, max_replicas=8)
    state = replanned(state)
    assert guaranteed(state, "low") == 8
    higher = replanned(submitted(state, "high", "vision", priority=5, min_replicas=8, max_replicas=8))
    assert (guaranteed(higher, "high"), guaranteed(higher, "low"), size(higher, "low")) == (8, 0, 8)
    assert higher.plan.placement["low"] == state.plan.placement["low"]
    again = replanned(ended(higher, "high"))
    assert (guaranteed(again, "low"), again.plan.placement["low"]) == (8, state.plan.placement["low"])


def test_plan_when_an_equal_priority_comes_lets_it_wait_with_a_reason() -> None:
    state = submitted(a_pool(HALVES, nodes=FOUR), "first", "vision", priority=5, min_replicas=8, max_replicas=8)
    state = submitted(state, "speech", "speech", min_replicas=5, max_replicas=5)
    state = replanned(submitted(state, "second", "vision", min_replicas=4, max_replicas=4))
    assert not size(state, "second")
    assert said(state.plan.reasons["second"]) == (
        "waits: virtual cluster vision has 2 of its 2 nodes in use by its own jobs of higher priority;"
        " idle cells would fit 3 workers, it needs 4 at least"
    )


def test_plan_when_its_own_jobs_of_higher_priority_hold_a_part_says_what_is_left_and_what_would_do() -> None:
    pool = replace(a_pool({"vision": {"node": 4}}, nodes=FOUR), pool="a100")
    state = submitted(pool, "higher", "vision", priority=5, min_replicas=8, max_replicas=8)
    state = submitted(state, "another", "vision", priority=5, min_replicas=5, max_replicas=5)
    state = replanned(replace(state, plan=replace(state.plan, pool="a100")))
    state = replanned(submitted(state, "job", "vision", min_replicas=4, max_replicas=4))
    assert said(state.plan.reasons["job"]) == (
        "waits: virtual cluster vision has 4 of its 4 a100 nodes in use by its own jobs of higher priority;"
        " idle cells would fit 3 workers, it needs 4 at least"
    )


def test_plan_when_a_gang_is_larger_than_the_quota_says_so() -> None:
    state = submitted(a_pool(HALVES, nodes=FOUR), "blocker", "speech", min_replicas=8, max_replicas=8)
    state = replanned(submitted(state, "large", "vision", min_replicas=9, max_replicas=9))
    assert said(state.plan.reasons["large"]) == (
        "waits: the whole quota of virtual cluster vision holds 8 workers of 1 GPU, it needs 9 at least;"
        " idle cells would fit 8 workers, it needs 9 at least"
    )


def test_plan_when_a_gang_waits_starts_a_smaller_one_that_fits() -> None:
    state = submitted(a_pool(HALVES, nodes=FOUR), "blocker", "speech", min_replicas=8, max_replicas=8)
    state = submitted(state, "running", "vision", min_replicas=4, max_replicas=4)
    state = replanned(submitted(state, "large", "vision", min_replicas=6, max_replicas=6))
    state = replanned(submitted(state, "small", "vision", min_replicas=4, max_replicas=4))
    assert (size(state, "large"), guaranteed(state, "small")) == (0, 4)


def test_plan_when_a_virtual_cluster_has_a_policy_shares_its_quota_by_it() -> None:
    cells = {"vision": {"node": 1}, "speech": {"node": 3}}
    state = a_pool(cells, nodes=FOUR, policies={"vision": "elastic-srjf"})
    state = submitted(state, "blocker", "speech", min_replicas=12, max_replicas=12)
    state = submitted(state, "long", "vision", min_replicas=3, max_replicas=4)
    state = submitted(state, "short", "vision", min_replicas=3, max_replicas=4)
    times = {
        job_id: Estimate(speedup=linear_speedup(4), remaining_s=left_s)
        for job_id, left_s in (("long", 9000.0), ("short", 90.0))
    }
    state = replanned(replace(state, estimates=times))
    assert (size(state, "long"), guaranteed(state, "short")) == (0, 4)


def test_plan_when_the_pool_serves_requests_lends_no_more_than_requested() -> None:
    state = a_pool(HALVES, nodes=FOUR, settings=Settings(policy="fifo"))
    state = submitted(state, "modest", "vision", min_replicas=2, requested_replicas=4, max_replicas=16)
    assert size(replanned(state), "modest") == 4


def test_plan_when_a_node_is_lost_places_its_guaranteed_workers_elsewhere_in_the_quota() -> None:
    state = replanned(submitted(a_pool(HALVES, nodes=FOUR), "a", "vision", min_replicas=4, max_replicas=4))
    (node,) = {*state.plan.placement["a"]}
    lost = reached(state)
    lost = replanned(replace(lost, nodes={**lost.nodes, node: a_node(node, is_draining=True)}))
    assert guaranteed(lost, "a") == 4
    assert node not in lost.plan.placement["a"]


def test_plan_when_nobody_was_given_cells_gives_them_to_default() -> None:
    state = a_pool({"vision": {"node": 3}}, nodes=FOUR)
    state = submitted(state, "vision", "vision", min_replicas=2, max_replicas=16)
    state = replanned(submitted(state, "nameless", "", min_replicas=4, max_replicas=4))
    assert (guaranteed(state, "nameless"), guaranteed(state, "vision"), size(state, "vision")) == (4, 12, 12)


def test_plan_when_quota_cells_are_switches_gives_workers_devices_of_one_switch() -> None:
    state = a_pool({"vision": {"rack.node.switch": 2}}, nodes=FOUR, physical=SWITCHES)
    state = submitted(state, "default", "default", min_replicas=3, max_replicas=3, gpus_per_replica=Gpus(4))
    state = replanned(submitted(state, "pair", "vision", min_replicas=2, max_replicas=2, gpus_per_replica=Gpus(2)))
    assert guaranteed(state, "pair") == 2
    assert sorted(state.plan.devices["pair"]) == [(0, 1), (2, 3)]
    assert state.plan.guaranteed["pair"] == ("switch/0", "switch/1")


def test_plan_when_virtual_clusters_are_applied_to_a_running_pool_lets_everything_go_on() -> None:
    pool = submitted(a_pool(HALVES, nodes=FOUR), "a", "", min_replicas=6, max_replicas=6)
    before = replanned(replace(pool, cells=None))
    assert not before.plan.devices
    state = replanned(replace(reached(before), cells=some_cells({"vision": {"node": 2}})))
    assert state.plan.placement == before.plan.placement
    assert guaranteed(state, "a") == 6


def test_plan_when_virtual_clusters_are_gone_notes_no_cells_any_longer() -> None:
    state = replanned(replace(reached(a_lending_pool()), cells=None))
    assert (state.plan.guaranteed, state.plan.devices) == ({}, {})
    assert size(state, "elastic") == 16


def test_plan_when_others_use_devices_of_a_node_plans_around_them() -> None:
    nodes = [a_node("n1", foreign_gpus=Gpus(2)), *FOUR[1:]]
    state = replanned(submitted(a_pool(HALVES, nodes=nodes), "elastic", "vision", min_replicas=2, max_replicas=16))
    assert state.plan.placement["elastic"].count("n1") == 2
    assert "n1" not in state.plan.placement["elastic"][: guaranteed(state, "elastic")]


def test_plan_when_nothing_has_changed_is_not_adopted_again() -> None:
    assert replan(a_lending_pool()) is None


def test_plan_when_undeclared_nodes_are_gone_leaves_the_last_quota_out() -> None:
    state = submitted(a_pool(HALVES, nodes=FOUR[:3]), "a", "vision", min_replicas=8, max_replicas=8)
    state = replanned(submitted(state, "b", "speech", min_replicas=4, max_replicas=4))
    assert (guaranteed(state, "a"), guaranteed(state, "b"), size(state, "b")) == (8, 0, 4)


def with_gang(state: ClusterState, node: str, *, quota: str = "node", cluster: str = "speech") -> ClusterState:
    """Return the state in which a gang of one pod has a whole node; its pod is not bound yet."""
    request = GangRequest(name="pods", virtual_cluster=cluster, members=((1, 4),), priority=0 if quota else -1)
    cells = WorkerCells(node=node, devices=(0, 1, 2, 3), chain="node", quota=quota)
    gang = GangAllocation(request=request, placement=(cells,), pods={0: GangPod(uid="u", key="ml/pod")})
    return replace(state, gangs={"pods": gang})


def test_plan_when_a_gang_of_pods_has_cells_gives_them_back_whether_the_pod_is_there_or_not() -> None:
    state = with_gang(a_lending_pool(), "n4")
    bound = replace(state, nodes={**state.nodes, "n4": replace(state.nodes["n4"], foreign_gpus=Gpus(4))})
    for each in (replanned(state), replanned(bound)):
        assert (size(each, "elastic"), guaranteed(each, "elastic")) == (12, 8)
        assert "n4" not in each.plan.placement["elastic"]


def test_plan_when_a_gang_of_pods_uses_a_quota_leaves_the_rest_of_it_to_jobs() -> None:
    state = submitted(with_gang(a_pool(HALVES, nodes=FOUR), "n1"), "job", "speech", min_replicas=4, max_replicas=16)
    plan = replanned(state)
    assert (guaranteed(plan, "job"), size(plan, "job")) == (4, 12)
    assert replan(plan) is None


def test_plan_when_a_gang_of_pods_has_a_lower_priority_waits_for_its_cells() -> None:
    pool = with_gang(a_pool({"vision": {"node": 1}}, nodes=FOUR[:1]), "n1", cluster="vision")
    assert size(replanned(submitted(pool, "high", "vision", min_replicas=4, max_replicas=4, priority=9)), "high") == 0


def test_plan_when_pods_use_idle_cells_puts_no_guarantee_on_their_node() -> None:
    pool = with_gang(a_pool(HALVES, nodes=FOUR), "n1", quota="")
    plan = replanned(submitted(pool, "job", "vision", min_replicas=8, max_replicas=8))
    assert (guaranteed(plan, "job"), set(plan.plan.placement["job"]) & {"n1"}) == (8, set())


def test_plan_when_a_job_within_its_quota_is_on_idle_cells_does_not_lend_these_to_others() -> None:
    large, small = a_node("n1", gpus=8), a_node("n2", gpus=4)
    quotas = {"vision": {"node-8": 1}, "speech": {"node-4": 1}}
    state = a_pool(quotas, nodes=(replace(large, is_ready=False), small), settings=Settings(policy="fifo"))
    state = replanned(submitted(state, "own", "vision", min_replicas=4, max_replicas=4))
    assert (size(state, "own"), guaranteed(state, "own")) == (4, 0)
    # The node of its quota is back; by the pool's policy older jobs go first, which have no guarantee.
    state = replace(reached(state), nodes={"n1": large, "n2": small})
    for job_id, workers in (("eight", 8), ("four", 4)):
        state = submitted(state, job_id, "speech", priority=-1, min_replicas=workers, max_replicas=workers)
        state = replace(state, jobs={**state.jobs, job_id: replace(state.jobs[job_id], submitted_at=-1.0)})
    state = replanned(state)
    assert (size(state, "own"), size(state, "eight"), size(state, "four")) == (4, 8, 0)


def test_plan_when_what_is_left_of_a_job_is_on_a_cordoned_node_under_other_indices_halts_it() -> None:
    pool = a_pool({"vision": {"node": 1}}, nodes=FOUR[:2])
    state = reached(replanned(submitted(pool, "elastic", "vision", priority=-1, min_replicas=2, max_replicas=8)))
    first, last = state.plan.placement["elastic"][0], state.plan.placement["elastic"][-1]
    assert state.plan.placement["elastic"] == (*[first] * 4, *[last] * 4)
    state = replace(state, nodes={**state.nodes, last: replace(state.nodes[last], is_schedulable=False)})
    state = replanned(submitted(state, "gang", "vision", min_replicas=4, max_replicas=4))
    assert state.plan.placement == {"gang": (first,) * 4}
    assert size(state, "elastic") == 0
