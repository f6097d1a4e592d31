"""Jobs that ask for a part of a GPU in a pool with virtual clusters: each shared GPU is one cell of theirs."""

import sys

from msgspec.structs import replace

from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import ended, guaranteed, replanned, size, some_cells, submitted
from tests.unit.planner.virtual_clusters.sharing_pools import GPU, a_sharing_pool, carried_out, shared
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.cells.accounting import borrowed_leafs, quota_use
from voda.cluster.port import Observed
from voda.domain.cells import CellTypeSpec, PhysicalCellSpec, PhysicalClusterSpec
from voda.domain.gpus import ContainerGpus, GpuRequest
from voda.domain.job import StartBackoff
from voda.domain.reasons.nodes import Said
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.planner.candidates import Candidates
from voda.planner.sharing import with_stand_ins
from voda.planner.virtual_clusters import book_of, guaranteed_workers
from voda.reconcilers.diff import diff

HALVES = {"vision": {"node.gpu": 2}, "speech": {"node.gpu": 2}}


def a_machine(quotas: dict[str, dict[str, int]] | None = None) -> ClusterState:
    """Return one machine of four GPUs, two for each of two virtual clusters."""
    return a_sharing_pool(quotas or HALVES, gpus={"n1": 4})


def used(state: ClusterState, cluster: str) -> int:
    """Return how many GPUs of its quota a virtual cluster uses."""
    return sum(use.used_leafs for key, use in quota_use(book_of(state)).items() if key.virtual_cluster == cluster)


def borrowed(state: ClusterState, cluster: str) -> int:
    return sum(leafs for (owner, _), leafs in borrowed_leafs(book_of(state)).items() if owner == cluster)


def test_shares_when_their_virtual_cluster_has_a_cell_take_one_whole_and_come_together_there() -> None:
    state = shared(shared(a_machine(), "a", "vision", 400), "b", "vision", 600)
    state = carried_out(replanned(state))
    assert state.plan.placement == {"a": ("n1",), "b": ("n1",)}
    assert state.plan.devices["a"] == state.plan.devices["b"]
    assert state.plan.guaranteed == {"a": ("gpu/0",), "b": ("gpu/0",)}
    assert (used(state, "vision"), used(state, "speech"), guaranteed_workers(state)) == (1, 0, {"a": 1, "b": 1})
    assert said(state.plan.reasons["a"]) == (
        "gets 400 milli of a GPU that others share, on n1; guaranteed by virtual cluster vision"
    )
    # One more finds no room there, and takes a second GPU.
    state = carried_out(replanned(shared(state, "c", "vision", 100)))
    assert state.plan.devices["c"] != state.plan.devices["a"]
    assert used(state, "vision") == 2


def test_shares_of_two_virtual_clusters_or_with_and_without_a_guarantee_are_never_on_one_gpu() -> None:
    state = a_machine()
    for name, cluster, priority in (("a", "vision", 0), ("b", "speech", 0), ("c", "vision", -1), ("d", "vision", 7)):
        state = carried_out(replanned(shared(state, name, cluster, 100, priority=priority)))
    gpus = {name: state.plan.devices[name] for name in "abcd"}
    assert len({gpus[name] for name in "abc"}) == 3
    assert gpus["d"] == gpus["a"]
    assert state.plan.guaranteed.keys() == {"a", "b", "d"}
    assert (used(state, "vision"), used(state, "speech"), borrowed(state, "vision")) == (1, 1, 1)


def test_share_when_elastic_jobs_have_the_quota_makes_them_shrink_to_no_less_than_their_minimum() -> None:
    state = carried_out(replanned(submitted(a_machine(), "train", "vision", max_replicas=4)))
    assert size(state, "train") == 4
    state = carried_out(replanned(shared(state, "nb", "vision", 250)))
    assert (size(state, "train"), guaranteed(state, "nb")) == (3, 1)
    state = carried_out(replanned(shared(state, "serve", "speech", 250)))
    assert (size(state, "train"), guaranteed(state, "train"), guaranteed(state, "serve")) == (2, 1, 1)
    assert said(state.plan.reasons["train"]).startswith("shrunk from 3 to 2 workers")


def test_share_when_the_quota_is_full_and_no_cell_is_idle_waits_and_says_what_is_missing() -> None:
    state = a_machine()
    for cluster in HALVES:
        state = submitted(state, f"train-{cluster}", cluster, min_replicas=2, max_replicas=2)
    state = replanned(shared(carried_out(replanned(state)), "nb", "vision", 250))
    assert said(state.plan.reasons["nb"]) == (
        "waits: needs 250 milli of one GPU; virtual cluster vision has 2 of its 2 gpus in use by its own jobs; idle"
        " cells would fit 0 workers, it needs 1 at least"
    )
    state = replanned(shared(ended(state, "train-speech"), "big", "speech", 800))
    assert guaranteed(state, "nb") == 0
    assert said(state.plan.reasons["nb"]) == (
        "gets 250 milli of a GPU that was whole, on n1; on idle cells, without a guarantee"
    )


def test_share_that_backs_off_leaves_its_part_to_others_and_takes_it_again_where_nobody_wants_it() -> None:
    state = carried_out(replanned(shared(a_machine({"vision": {"node.gpu": 1}}), "runs", "vision", 300)))
    state = replanned(shared(state, "stuck", "vision", 500))
    others = submitted(state, "train", "default", min_replicas=3, max_replicas=3)
    backoff = StartBackoff(reason=Said(text="x"), at_work=0, planned=1, failures=1, retry_at=600.0, retry_after_s=600.0)
    jobs = {**others.jobs, "stuck": replace(others.jobs["stuck"], backoff=backoff)}
    state = carried_out(replanned(replace(others, jobs=jobs)))
    state = replace(state, jobs={**state.jobs, "stuck": replace(state.jobs["stuck"], workers={})})
    account = state.shares["n1"]
    del account.pods["stuck"]
    assert state.plan.devices["stuck"] == state.plan.devices["runs"]
    state = replanned(shared(state, "late", "vision", 500))
    assert state.plan.devices["late"] == state.plan.devices["runs"]
    assert "stuck" not in state.plan.placement
    assert said(state.plan.reasons["stuck"]).endswith("others go first for 10m 00s")


def test_share_that_has_not_started_when_its_node_is_cordoned_goes_elsewhere_and_its_neighbour_stays() -> None:
    state = a_sharing_pool({"vision": {"node.gpu": 4}}, gpus={"n1": 2, "n2": 2})
    state = carried_out(replanned(shared(state, "runs", "vision", 250)))
    state = replanned(shared(state, "comes", "vision", 250))
    assert state.plan.placement["comes"] == state.plan.placement["runs"]
    (node,) = state.plan.placement["runs"]
    nodes = {**state.nodes, node: replace(state.nodes[node], is_schedulable=False)}
    state = replanned(replace(state, nodes=nodes))
    assert state.plan.placement["runs"] == (node,)
    assert state.plan.placement["comes"] != (node,)


def test_decision_on_many_shares_takes_time_in_proportion() -> None:
    def calls(jobs: int) -> int:
        state = a_sharing_pool(
            {f"vc{each}": {"node.gpu": 8} for each in range(4)}, gpus={f"n{at}": 8 for at in range(4)}
        )
        for number in range(jobs):
            state = shared(state, f"j{number}", f"vc{number % 4}", 700)
        count = 0

        def counted(_frame: object, event: str, _value: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            state = replanned(state)
            diff(state, Observed(nodes=state.nodes, workers={}, gpus_per_replica={}, shares=state.shares))
        finally:
            sys.setprofile(None)
        return count

    calls(50)
    assert calls(400) < 5 * calls(100)


def test_share_when_those_of_its_virtual_cluster_leave_too_little_says_how_much_is_left() -> None:
    state = carried_out(replanned(shared(a_machine({"vision": {"node.gpu": 4}}), "nb", "vision", 700)))
    state = carried_out(replanned(submitted(state, "train", "vision", min_replicas=3, max_replicas=3)))
    state = replanned(shared(state, "late", "vision", 400))
    assert said(state.plan.reasons["late"]).startswith(
        "waits: needs 400 milli of one GPU; a shared one of virtual cluster vision has at most 300 milli and"
        " 16,000 MiB left; virtual cluster vision has 4 of its 4 gpus in use by its own jobs"
    )


def test_shares_on_idle_cells_when_a_guarantee_needs_the_cell_leave_it_together() -> None:
    state = shared(shared(a_machine(), "a", "vision", 400, priority=-1), "b", "vision", 400, priority=-1)
    state = submitted(carried_out(replanned(state)), "mine", "vision", min_replicas=2, max_replicas=2)
    state = carried_out(replanned(state))
    assert (size(state, "a"), size(state, "b"), guaranteed(state, "mine")) == (1, 1, 2)
    # A worker of speech that shrinks would go first; there is none.
    state = replanned(submitted(state, "theirs", "speech", min_replicas=2, max_replicas=2))
    assert (size(state, "a"), size(state, "b"), guaranteed(state, "theirs")) == (0, 0, 2)
    assert said(state.plan.reasons["a"]) == (
        "preempted by job theirs: needs 400 milli of one GPU; it is opportunistic, and has no part in a guarantee; "
        "idle cells would fit 0 workers, it needs 1 at least; virtual cluster speech took cells of 1 worker back"
    )
    state = carried_out(replanned(ended(carried_out(state), "theirs")))
    assert (size(state, "a"), size(state, "b")) == (1, 1)


def test_share_with_a_guarantee_that_runs_gives_way_to_nobody() -> None:
    state = carried_out(replanned(shared(a_machine(), "nb", "vision", 250)))
    for number, cluster in enumerate(("vision", "speech")):
        big = f"big{number}"
        state = carried_out(replanned(submitted(state, big, cluster, min_replicas=2, max_replicas=2, priority=1000)))
        assert guaranteed(state, "nb") == 1
    assert (size(state, "big0"), guaranteed(state, "big1")) == (0, 2)
    state = replanned(submitted(state, "small", "vision", min_replicas=2, max_replicas=2))
    assert said(state.plan.reasons["small"]).startswith(
        "waits: virtual cluster vision has 1 of its 2 gpus in use by its own jobs; idle"
    )


def test_share_that_has_not_started_gives_its_cell_up_for_a_higher_priority_of_its_virtual_cluster() -> None:
    state = a_sharing_pool({"vision": {"node.gpu": 2}}, gpus={"n1": 2})
    state = replanned(shared(state, "nb", "vision", 250))
    state = replanned(submitted(state, "big", "vision", min_replicas=2, max_replicas=2, priority=1))
    assert (size(state, "nb"), guaranteed(state, "big")) == (0, 2)


def test_gpus_when_a_guarantee_needs_a_cell_are_left_where_the_fewest_jobs_lose_by_it() -> None:
    state = carried_out(replanned(shared(a_machine({"vision": {"node.gpu": 2}}), "one", "default", 100, priority=-1)))
    for name in "abc":
        state = carried_out(replanned(shared(state, name, "vision", 100, priority=-1)))
    state = carried_out(replanned(submitted(state, "own", "default", min_replicas=2, max_replicas=2)))
    state = replanned(submitted(state, "mine", "vision"))
    assert (size(state, "one"), [size(state, name) for name in "abc"], guaranteed(state, "mine")) == (0, [1, 1, 1], 1)


def test_share_that_is_planned_on_a_gpu_where_too_little_is_left_comes_to_another() -> None:
    state = carried_out(replanned(shared(a_machine(), "runs", "vision", 700)))
    state = shared(state, "comes", "vision", 600)
    places = {
        name: {**getattr(state.plan, name), "comes": getattr(state.plan, name)["runs"]}
        for name in ("placement", "devices", "guaranteed")
    }
    state = replanned(replace(state, plan=replace(state.plan, **places)))
    assert state.plan.devices["comes"] != state.plan.devices["runs"]
    assert state.plan.guaranteed.keys() == {"comes", "runs"}


def test_share_that_runs_on_an_idle_cell_leaves_it_for_a_guarantee_alone() -> None:
    state = a_sharing_pool({"vision": {"node.gpu": 2}}, gpus={"n1": 2})
    state = submitted(submitted(state, "own", "vision"), "first", "vision", priority=-1, min_replicas=2, max_replicas=2)
    state = carried_out(replanned(shared(carried_out(replanned(state)), "nb", "vision", 250, priority=-1)))
    assert (guaranteed(state, "own"), size(state, "first"), size(state, "nb")) == (1, 0, 1)
    # The policy would rather have the job that came first there.
    state = carried_out(replanned(ended(state, "own")))
    assert (size(state, "first"), size(state, "nb")) == (0, 1)
    state = replanned(submitted(state, "owner", "vision", min_replicas=2, max_replicas=2))
    assert (size(state, "nb"), guaranteed(state, "owner")) == (0, 2)


def test_share_that_waits_is_served_before_lower_priorities_of_its_virtual_cluster() -> None:
    state = submitted(a_machine({"vision": {"node.gpu": 4}}), "low", "vision", min_replicas=4, max_replicas=4)
    state = carried_out(replanned(state))
    state = replanned(shared(state, "nb", "vision", 250, priority=1))
    assert (guaranteed(state, "nb"), size(state, "low")) == (1, 0)


def test_shares_when_their_node_is_cordoned_stay_and_no_other_comes_to_their_gpu() -> None:
    state = a_sharing_pool({"vision": {"node.gpu": 4}}, gpus={"n1": 2, "n2": 2})
    state = carried_out(replanned(shared(state, "a", "vision", 250)))
    (node,) = state.plan.placement["a"]
    nodes = {**state.nodes, node: replace(state.nodes[node], is_schedulable=False)}
    state = replanned(shared(replace(state, nodes=nodes), "b", "vision", 250))
    assert state.plan.placement["a"] == (node,)
    assert state.plan.placement["b"] != (node,)
    drained = {**state.nodes, node: replace(state.nodes[node], is_draining=True)}
    state = replanned(replace(state, nodes=drained))
    assert node not in {each for (each,) in state.plan.placement.values()}


def test_share_when_no_gpu_is_large_enough_or_there_is_none_to_share_says_so() -> None:
    state = replanned(shared(a_machine(), "nb", "vision", 250, memory_mib=20_000))
    assert said(state.plan.reasons["nb"]) == (
        "waits: needs 250 milli and 20,000 MiB of one GPU; no node can take it: n1: its smallest GPU has 16,000 MiB"
    )
    state = replanned(shared(replace(a_machine(), shares={}), "nb", "vision", 250))
    assert said(state.plan.reasons["nb"]) == (
        "waits: needs 250 milli of one GPU; no node can take it: n1: it has no GPUs to share"
    )


def test_shares_when_virtual_clusters_are_applied_go_on_where_they_are() -> None:
    state = replace(a_machine(), cells=None)
    for name in "ab":
        state = replanned(shared(state, name, "", 400))
    # On one GPU, by the account, whoever's they are from now on.
    state = replace(state, plan=replace(state.plan, devices={"a": ((0,),), "b": ((0,),)}))
    state = replace(carried_out(state), plan=replace(state.plan, devices={}))
    jobs = {
        name: replace(job, spec=replace(job.spec, virtual_cluster=cluster))
        for (name, job), cluster in zip(state.jobs.items(), ("vision", "speech"), strict=True)
    }
    state = carried_out(replanned(replace(state, jobs=jobs, cells=some_cells(HALVES))))
    assert state.plan.devices["a"] == state.plan.devices["b"]
    assert state.plan.guaranteed == {"a": ("gpu/0",)}
    state = carried_out(replanned(shared(state, "c", "vision", 100)))
    assert state.plan.devices["c"] != state.plan.devices["a"]


def test_plan_when_nothing_changes_is_the_same_again() -> None:
    state = a_machine()
    for name, cluster in (("a", "vision"), ("b", "vision"), ("c", "speech")):
        state = shared(state, name, cluster, 400)
    state = carried_out(replanned(submitted(state, "train", "default", max_replicas=4)))
    placement = state.plan.placement
    assert carried_out(replanned(state)).plan.placement == placement


def test_share_that_names_a_pinned_cell_has_a_gpu_there_that_no_other_share_comes_to() -> None:
    state = a_sharing_pool({"vision": {}}, gpus={"n1": 2, "n2": 2})
    physical = PhysicalClusterSpec(
        cell_types={"node": CellTypeSpec(child_cell_type="gpu", child_cell_number=2, is_node_level=True)},
        physical_cells=(
            PhysicalCellSpec(cell_type="node", cell_address="n1"),
            PhysicalCellSpec(cell_type="node", cell_address="n2", pinned_cell_id="lab"),
        ),
    )
    state = replace(state, cells=some_cells({"vision": {}}, physical=physical, pins={"vision": "lab"}))
    state = carried_out(replanned(shared(state, "pinned", "vision", 250, pinned_cell="lab")))
    state = carried_out(replanned(shared(state, "other", "default", 250)))
    assert state.plan.placement == {"pinned": ("n2",), "other": ("n1",)}
    assert said(state.plan.reasons["pinned"]).endswith("guaranteed by virtual cluster vision, in its pinned cell lab")


def test_quota_without_a_whole_gpu_holds_no_share_and_a_submit_can_say_so() -> None:
    state = shared(a_machine({"vision": {"node.gpu": 1}, "none": {}}), "nb", "none", 250)
    spec = state.jobs["nb"].spec
    assert state.cells is not None
    assert quota_shortage(state.cells, state.nodes, spec) == (
        "it starts only on idle cells of others, without a guarantee: the whole quota of virtual cluster none holds 0"
        " workers of 1 GPU, it needs 1 at least"
    )
    assert quota_shortage(state.cells, state.nodes, replace(spec, virtual_cluster="vision")) == ""


def test_plan_when_no_job_asks_for_a_part_is_made_from_the_very_state_whatever_pods_share() -> None:
    state = carried_out(replanned(submitted(a_machine(), "train", "vision")))
    assert with_stand_ins(Candidates(view=state)).candidates.view is state
    held = {"share": ContainerGpus(gpus=(3,), request=GpuRequest(milli=100))}
    pod = PodShares(pod="ml/notebook", containers=held, assigned_at=0.0)
    state = replace(state, shares={"n1": SharingNode(devices=(GPU,) * 4, pods={"a-pod": pod})})
    assert with_stand_ins(Candidates(view=state)).candidates.view is state
