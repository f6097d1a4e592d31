"""The accounts of shared GPUs: no GPU gives more than it has, a release returns all, capacity follows the node."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_node
from tests.unit.projections.test_live import folded
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.events.types import (
    NodeChanged,
    NodeJoined,
    NodeLeft,
    ShareAssigned,
    ShareReleased,
    ShareRequested,
    ShareRequestWithdrawn,
)
from voda.projections.cluster.live_cluster import LiveCluster

GPU = GpuDevice(memory_mib=16_000)


def a_share(milli: int, *, memory_mib: int = 0, gpu: int = 0) -> ContainerGpus:
    return ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=milli, memory_mib=memory_mib))


def whole(*gpus: int) -> ContainerGpus:
    return ContainerGpus(gpus=gpus, request=GpuRequest(devices=Gpus(len(gpus))))


def an_assignment(uid: str, *shares: ContainerGpus, node: str = "n1") -> ShareAssigned:
    containers = {f"c{number}": share for number, share in enumerate(shares)}
    return ShareAssigned(node=node, pod_uid=uid, pod=f"ml/{uid}", containers=containers)


def a_log(*assignments: ShareAssigned, gpus: int = 2) -> Log:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", devices=(GPU,) * gpus)), at=0)
    for fact in assignments:
        log.add(fact, at=1)
    return log


def free_of(live: LiveCluster, node: str = "n1") -> list[tuple[int, int]]:
    return [(gpu.milli, gpu.memory_mib) for gpu in live.shares.nodes[node].free()]


def test_share_when_assigned_is_taken_from_its_gpu() -> None:
    live = folded(a_log(an_assignment("u1", a_share(300, memory_mib=4_000), a_share(500, gpu=1))))
    assert free_of(live) == [(700, 12_000), (500, 16_000)]
    assert live.shares.node_of("u1") == "n1"


def test_share_when_released_leaves_the_gpu_as_it_was() -> None:
    log = a_log(an_assignment("u1", a_share(300, memory_mib=4_000)))
    log.add(ShareReleased(node="n1", pod_uid="u1"), at=2)
    live = folded(log)
    assert free_of(live) == [(1000, 16_000), (1000, 16_000)]
    assert live.shares.node_of("u1") == ""


def test_share_when_the_gpu_has_too_little_left_is_void() -> None:
    first = an_assignment("u1", a_share(600, memory_mib=10_000))
    for second in (a_share(500), a_share(100, memory_mib=7_000), whole(0), a_share(10, gpu=2)):
        live = folded(a_log(first, an_assignment("u2", second)))
        assert (live.shares.node_of("u2"), free_of(live)[0]) == ("", (400, 6_000))


def test_shares_when_together_they_exceed_a_gpu_are_void_as_a_whole() -> None:
    live = folded(a_log(an_assignment("u1", a_share(800), a_share(800))))
    assert free_of(live)[0] == (1000, 16_000)


def test_whole_gpu_when_a_share_is_on_it_is_void_also_where_the_share_has_no_compute() -> None:
    memory_alone = ContainerGpus(gpus=(0,), request=GpuRequest(memory_mib=100))
    live = folded(a_log(an_assignment("u1", memory_alone), an_assignment("u2", whole(0, 1))))
    assert live.shares.node_of("u2") == ""


def test_pod_when_it_has_its_gpus_gets_no_second_ones() -> None:
    live = folded(a_log(an_assignment("u1", a_share(300)), an_assignment("u1", a_share(300, gpu=1))))
    assert free_of(live) == [(700, 16_000), (1000, 16_000)]


def test_policies_when_a_gpu_is_shared_see_only_the_whole_free_ones() -> None:
    live = folded(a_log(an_assignment("u1", a_share(100)), an_assignment("u2", a_share(100))))
    assert (live.state("default").nodes["n1"].usable_gpus, live.nodes("default")["n1"].usable_gpus) == (3, 4)
    assert live.changed_pools == {"default"}


def test_gpu_when_it_vanishes_leaves_the_share_to_its_pod_and_takes_no_other() -> None:
    log = a_log(an_assignment("u1", a_share(300, gpu=1)))
    log.add(NodeChanged(node=a_node("n1", devices=(GPU,))), at=2)
    log.add(an_assignment("u2", a_share(300, gpu=1)), at=3)
    live = folded(log)
    assert (free_of(live), live.shares.node_of("u1"), live.shares.node_of("u2")) == ([(1000, 16_000)], "n1", "")


def test_node_when_it_leaves_keeps_shares_until_they_are_released() -> None:
    log = a_log(an_assignment("u1", a_share(300)))
    log.add(NodeLeft(name="n1"), at=2)
    assert set(folded(log).shares.pods("n1")) == {"u1"}
    log.add(NodeJoined(node=a_node("n1", devices=(GPU,))), at=3)
    assert free_of(folded(log)) == [(700, 16_000)]


def test_account_of_a_node_that_is_gone_is_forgotten_once_nobody_has_or_awaits_any_of_it() -> None:
    log = a_log(an_assignment("u1", a_share(300)))
    log.add(ShareRequested(node="n1", pod_uid="u2", pod="ml/u2", containers={"c": GpuRequest(milli=300)}), at=1)
    log.add(NodeLeft(name="n1"), at=2)
    log.add(ShareReleased(node="n1", pod_uid="u1"), at=3)
    assert list(folded(log).shares.nodes) == ["n1"]
    log.add(ShareRequestWithdrawn(node="n1", pod_uid="u2"), at=4)
    assert list(folded(log).shares.nodes) == []
    log.add(an_assignment("u3", a_share(300)), at=5)
    assert list(folded(log).shares.nodes) == []


def test_version_of_a_node_is_that_of_its_stream() -> None:
    log = a_log(an_assignment("u1", a_share(900)), an_assignment("u2", a_share(900)))
    assert folded(log).shares.nodes["n1"].version == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.lists(
                st.one_of(
                    st.builds(
                        a_share,
                        st.integers(1, 999),
                        memory_mib=st.integers(0, 16_000),
                        gpu=st.integers(0, 2),
                    ),
                    st.sampled_from([whole(0), whole(1), whole(0, 1)]),
                ),
                max_size=3,
            ),
        ),
        max_size=30,
    )
)
def test_gpus_whatever_is_recorded_never_give_more_than_they_have(
    steps: list[tuple[str, list[ContainerGpus]]],
) -> None:
    log = a_log()
    for second, (uid, shares) in enumerate(steps):
        log.add(an_assignment(uid, *shares) if shares else ShareReleased(node="n1", pod_uid=uid), at=second)
    live = folded(log)
    assert all(milli >= 0 and memory_mib >= 0 for milli, memory_mib in free_of(live))
    again = LiveCluster()
    again.load(live.dump())
    assert again.dump() == live.dump()


def a_request(uid: str, *, node: str = "n1", milli: int = 250) -> ShareRequested:
    return ShareRequested(node=node, pod_uid=uid, pod=f"ml/{uid}", containers={"gpu": GpuRequest(milli=milli)})


def test_request_lasts_until_the_pod_has_gpus_anywhere_or_it_is_withdrawn() -> None:
    log = a_log()
    log.add(NodeJoined(node=a_node("n2", devices=(GPU,))), at=2)
    for uid in ("u1", "u2"):
        log.add(a_request(uid), at=3)
    assert dict(folded(log).shares.requests()) == {"u1": "n1", "u2": "n1"}
    log.add(an_assignment("u1", a_share(250), node="n2"), at=4)
    log.add(ShareRequestWithdrawn(node="n1", pod_uid="u2"), at=5)
    live = folded(log)
    assert not live.shares.requests()
    assert not live.shares.nodes["n1"].requests
    assert live.shares.node_of("u1") == "n2"


def test_request_of_a_pod_that_has_gpus_or_has_requested_others_is_void() -> None:
    log = a_log(an_assignment("u1", a_share(250)))
    for fact in (a_request("u1"), a_request("u2"), a_request("u2", node="n2")):
        log.add(fact, at=2)
    assert dict(folded(log).shares.requests()) == {"u2": "n1"}


def test_request_of_a_snapshot_is_there_still() -> None:
    log = a_log()
    log.add(a_request("u1"), at=2)
    loaded = LiveCluster()
    loaded.load(folded(log).dump())
    assert dict(loaded.shares.requests()) == {"u1": "n1"}
    assert loaded.shares.nodes["n1"].requests["u1"].requested_at == 2


def test_gpu_for_pods_alone_takes_no_gpu_from_jobs() -> None:
    gpus = (GPU, replace(GPU, is_for_pods=True))
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=1, devices=gpus)), at=0)
    log.add(an_assignment("u1", a_share(250, gpu=1)), at=1)
    live = folded(log)
    assert live.state("default").nodes["n1"].usable_gpus == 1
    log.add(an_assignment("u2", a_share(250)), at=2)
    assert folded(log).state("default").nodes["n1"].usable_gpus == 0
