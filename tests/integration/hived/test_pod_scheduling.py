"""HiveD's pods over HTTP: they share the cells with voda's jobs, and the log has who has which."""

from msgspec.structs import replace

from tests.builders import a_spec
from tests.integration.api.test_plans import a_leader, decided, pass_time
from tests.integration.hived.scheduling import MemoryPods, scheduling
from voda.events.types import GangLeft, JobSubmitted, WorkerExited, WorkerStarted
from voda.hived.bind_info import BIND_INFO, ISOLATION
from voda.log.memory import MemoryStore


async def test_gang_when_its_cells_are_free_is_bound_in_them_and_recorded() -> None:
    async with scheduling() as at:
        pods = at.pods.gang("g", 4, 2)
        nodes = await at.start(*pods)
        assert len(set(nodes)) == 2
        notes = [at.pods.pods[pod.key].annotation(ISOLATION) for pod in pods]
        assert sorted(zip(nodes, notes, strict=True)) == sorted(
            {(node, each) for node in nodes for each in ("0,1", "2,3")}
        )
        assert await at.facts() == ["gang.placed", *["gang.joined"] * 4]
        assert await at.start(*pods) == nodes
        assert len(await at.facts()) == 5


async def test_gang_when_the_quota_is_used_waits_until_the_pods_are_gone() -> None:
    async with scheduling() as at:
        first, second = at.pods.gang("first", 2, 4), at.pods.gang("second", 2, 4)
        await at.start(*first)
        await at.watch.look()
        assert "too few cells of the virtual cluster's quota are free" in await at.reason(second[0])
        at.pods.delete(first[0])
        await at.watch.look()
        assert "too few cells" in await at.reason(second[0])
        await at.watch.reclaim()
        assert at.pods.woken == []
        at.pods.delete(first[1])
        await at.watch.look()
        # kube-scheduler has seen the deletion before voda, and would not ask again for minutes.
        await at.watch.reclaim()
        assert at.pods.woken == [second[0].key]
        assert all(await at.start(*second))


async def test_opportunistic_gang_when_a_guarantee_needs_its_cells_is_preempted_whole() -> None:
    async with scheduling() as at:
        idle = at.pods.gang("idle", 4, 4, virtualCluster="b", priority=-1)
        await at.start(*idle)
        guaranteed = at.pods.gang("high", 2, 4)
        assert "these gangs have left its cells: idle" in await at.reason(guaranteed[0])
        victims = await at.preempt(guaranteed[0])
        assert sorted(uid for uids in victims.values() for uid in uids) == sorted(pod.metadata.uid for pod in idle)
        rival = at.pods.gang("rival", 2, 4)
        await at.watch.look()
        assert "too few cells" in await at.reason(rival[0])
        at.pods.delete(*idle)
        await at.watch.look()
        assert await at.preempt(guaranteed[0]) == {}
        assert len(set(await at.start(*guaranteed))) == 2
        assert "too few cells" in await at.reason(rival[0])


async def test_reservation_when_the_preempting_pod_is_gone_ends() -> None:
    async with scheduling() as at:
        await at.start(*at.pods.gang("low", 2, 4))
        (high,) = at.pods.gang("high", 1, 4, priority=5)
        assert await at.preempt(high)
        at.pods.delete(high)
        for span_s in (0, 60):
            pass_time(at.service, span_s)
            await at.watch.look()
        assert [group["metadata"]["name"] for group in (await at.inspect("affinitygroups/"))["items"]] == ["low"]


async def test_replica_that_begins_to_lead_has_every_place_and_the_pods_that_hived_bound() -> None:
    store, pods = MemoryStore(), MemoryPods()
    async with scheduling(pods) as at:
        store = at.service.backend.journal.store  # type: ignore[assignment]
        gang = pods.gang("g", 2, 4)
        nodes = await at.start(gang[0]), await at.node(gang[1])
    async with scheduling(pods, store) as at:
        assert await at.node(gang[1]) == nodes[1]
        assert await at.bind(gang[1], nodes[1]) == ""
    async with scheduling(pods) as at:
        # Another log: what there is is in the annotations alone.
        assert await at.facts() == ["gang.placed", "gang.joined", "gang.joined"]
        assert "too few cells" in await at.reason(pods.create("late", leafCellNumber=4))


async def test_cells_that_a_job_has_borrowed_are_left_by_it_before_the_pod_is_bound() -> None:
    async with scheduling() as at:
        leader = await a_leader(at.service)
        spec = a_spec("elastic", virtual_cluster="b", min_replicas=2, max_replicas=16)
        await at.service.happens(JobSubmitted(spec=spec))
        await decided(at.service, leader)
        planned = at.service.backend.journal.view.cluster.plan("default").placement["elastic"]
        await at.service.happens(WorkerStarted(job_id="elastic", workers=dict(enumerate(planned))))
        (pod,) = at.pods.gang("g", 1, 4)
        assert "waits until workers of elastic have left node" in await at.reason(pod)
        await decided(at.service, leader)
        after = at.service.backend.journal.view.cluster.plan("default").placement["elastic"]
        assert len(planned) == 16
        assert len(after) == 12
        assert "waits until workers of elastic have left node" in await at.reason(pod)
        gone = tuple(i for i, node in enumerate(planned) if i >= len(after) or after[i] != node)
        await at.service.happens(WorkerExited(job_id="elastic", workers=gone))
        (node,) = await at.start(pod)
        assert node not in after


async def test_cells_that_a_job_has_borrowed_are_reclaimed_for_a_pod_that_kube_scheduler_does_not_ask_for() -> None:
    async with scheduling() as at:
        await at.watch.reclaim()
        (before,) = at.pods.gang("asked", 1, 4)
        await at.watch.reclaim()
        # Nobody is in its way: kube-scheduler will ask.
        assert await at.facts() == []
        leader = await a_leader(at.service)
        spec = a_spec("elastic", virtual_cluster="b", min_replicas=2, max_replicas=16)
        await at.service.happens(JobSubmitted(spec=spec))
        await decided(at.service, leader)
        for span_s, placed in ((1, 0), (20, 1)):
            pass_time(at.service, span_s)
            await at.watch.reclaim()
            assert (await at.facts()).count("gang.joined") == placed
        await decided(at.service, leader)
        assert len(at.service.backend.journal.view.cluster.plan("default").placement["elastic"]) == 12
        assert await at.start(before)
        at.pods.create("wrong", virtualCluster="none")
        pass_time(at.service, 20)
        await at.watch.reclaim()


async def test_job_of_a_virtual_cluster_has_what_its_pods_leave_of_the_quota() -> None:
    async with scheduling() as at:
        leader = await a_leader(at.service)
        nodes = await at.start(*at.pods.gang("g", 1, 4))
        await at.service.happens(JobSubmitted(spec=a_spec("job", virtual_cluster="a", min_replicas=4, max_replicas=16)))
        await decided(at.service, leader)
        plan = at.service.backend.journal.view.cluster.plan("default")
        assert (len(plan.placement["job"]), len(plan.guaranteed["job"])) == (12, 4)
        assert not {*nodes} & {*plan.placement["job"]}


async def test_bind_when_the_pod_is_deleted_or_another_has_its_name_frees_its_cells() -> None:
    async with scheduling() as at:
        (pod,) = at.pods.gang("g", 1, 4)
        node = await at.node(pod)
        other = "n1" if node != "n1" else "n2"
        assert f"has its cells on node {node}, and cannot be bound to {other}" in await at.bind(pod, other)
        renamed = replace(pod, metadata=replace(pod.metadata, name="another"))
        assert "pod team/another (g-0) has no cells" in await at.bind(renamed, node)
        assert await at.facts() == ["gang.placed", "gang.joined"]
        at.pods.delete(pod)
        assert f"pod {pod.key} ({pod.metadata.uid}) is gone" in await at.bind(pod, node)
        assert (await at.facts())[-1] == "gang.left"
        assert "has no cells: filter it before it is bound" in await at.bind(pod, node)
        assert (await at.inspect("affinitygroups/"))["items"] == []


async def test_gang_that_another_replica_recorded_meanwhile_is_seen_before_the_next_decision() -> None:
    async with scheduling() as at:
        (pod,) = at.pods.gang("g", 1, 4)
        node = await at.node(pod)
        await at.service.happens(
            GangLeft(pool="default", gang="g", pod_uid=pod.metadata.uid, pod=pod.key), actor="another"
        )
        assert (await at.inspect("affinitygroups/"))["items"] == []
        assert await at.node(pod) == node
        assert (await at.facts())[-2:] == ["gang.placed", "gang.joined"]


async def test_inspection_shows_gangs_cells_and_virtual_clusters() -> None:
    async with scheduling() as at:
        nodes = await at.start(*at.pods.gang("g", 2, 2))
        (group,) = (await at.inspect("affinitygroups/"))["items"]
        assert group == await at.inspect("affinitygroups/g")
        assert (group["status"]["vc"], group["status"]["state"]) == ("a", "Allocated")
        assert group["status"]["physicalPlacement"] == {nodes[0]: [0, 1, 2, 3]}
        status = await at.inspect("clusterstatus")
        assert status["physicalCluster"] == await at.inspect("clusterstatus/physicalcluster")
        assert status["virtualClusters"] == await at.inspect("clusterstatus/virtualclusters/")
        used = [cell["cellAddress"] for cell in status["physicalCluster"] if cell["cellState"] == "Used"]
        assert used == [nodes[0]]
        own = await at.inspect("clusterstatus/virtualclusters/a")
        assert sorted(cell["cellState"] for cell in own) == ["Free", "Used"]
        for path in ("affinitygroups/none", "clusterstatus/virtualclusters/none"):
            assert (await at.service.ask("GET", f"/v1/inspect/{path}")).status == 404
        assert BIND_INFO in (at.pods.pods["team/g-0"].metadata.annotations or {})
