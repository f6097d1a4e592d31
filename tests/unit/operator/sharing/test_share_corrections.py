"""What puts the account of a node right, as a function: it comes to say what pods have, by claims or annotations."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.sharing import ASSUMED, GPUS_OF, a_sharing_pod
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.reasons.pods import GpusGone, PodGone
from voda.domain.shares import PodShares, SharingNode
from voda.events.text.pods import pod_text
from voda.events.types import ShareAssigned, ShareReleased
from voda.extender.share_verbs import ExtenderPod
from voda.operator.sharing.annotated_shares import ClosedNodes, seen_shares
from voda.operator.sharing.claims.stale_claimants import UNALLOCATED_S, Standing, stale_claimants
from voda.operator.sharing.share_corrections import GivenShares, SeenShares, StaleShare, node_facts
from voda.projections.cluster.shares import ShareAccounts

GIB = 1_024


def a_share(gpu: int = 0, milli: int = 400, memory: int = 20 * GIB) -> Mapping[str, ContainerGpus]:
    return {"gpu": ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=milli, memory_mib=memory))}


def an_account(pods: Mapping[str, Mapping[str, ContainerGpus]] | None = None, *, gpus: int = 1) -> SharingNode:
    """Return an account of GPUs of 80 GiB, with shares assigned at 0: uid -> shares."""
    devices = tuple(GpuDevice(memory_mib=80 * GIB, name=f"d/n/gpu-{number}") for number in range(gpus))
    held = {uid: PodShares(pod=f"ns/{uid}", containers=each, assigned_at=0.0) for uid, each in (pods or {}).items()}
    return SharingNode(devices=devices, pods=held)


def first_gpu(account: SharingNode, pod: ExtenderPod) -> dict[str, ContainerGpus] | str:
    """Choose GPU 0 for each container, where it has so much left."""
    shares = {name: ContainerGpus(gpus=(0,), request=request) for name, request in pod.requests.items()}
    return account.refusal(shares) or shares


def corrected(
    account: SharingNode, given_: Mapping[str, Mapping[str, ContainerGpus]], stale: Collection[str] = ()
) -> SharingNode:
    """Return the account after the corrections; no fact of them may be void."""
    shares = {uid: GivenShares(key=f"ns/{uid}", containers=each) for uid, each in given_.items()}
    gone = [StaleShare(uid, f"ns/{uid}", PodGone()) for uid in stale]
    after, meant = account.copy(), account.pods.keys() - shares.keys()
    for fact in node_facts("n", account, SeenShares(stale=gone, given=shares, meant=meant), first_gpu).facts:
        if isinstance(fact, ShareAssigned):
            assert fact.pod_uid not in after.pods
            assert not after.refusal(fact.containers)
            after.pods[fact.pod_uid] = PodShares(pod=fact.pod, containers=fact.containers, assigned_at=0.0)
        else:
            del after.pods[fact.pod_uid]
    return after


def held(account: SharingNode) -> Mapping[str, Mapping[str, ContainerGpus]]:
    return {uid: each.containers for uid, each in account.pods.items()}


def test_account_that_says_what_claims_were_given_needs_no_fact() -> None:
    seen = SeenShares(given={"a": GivenShares(key="ns/a", containers=a_share())})
    assert node_facts("n", an_account({"a": a_share()}), seen, first_gpu).facts == []


def test_claims_that_others_allocated_are_recorded_and_other_gpus_than_meant_too() -> None:
    account = an_account({"a": a_share(0)}, gpus=2)
    assert held(corrected(account, {"a": a_share(1), "b": a_share(1)})) == {"a": a_share(1), "b": a_share(1)}


def test_share_that_is_only_meant_goes_where_kube_scheduler_has_given_its_gpu_away() -> None:
    account = an_account({"meant": a_share(0, 700), "kept": a_share(1, 700)}, gpus=2)
    assert held(corrected(account, {"other": a_share(0, 500)})) == {"kept": a_share(1, 700), "other": a_share(0, 500)}


def test_stale_shares_go_first() -> None:
    assert held(corrected(an_account({"a": a_share(0, 900)}), {"b": a_share(0, 900)}, ["a"])) == {"b": a_share(0, 900)}


shares_of_gpus = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(a_share, st.integers(0, 2), st.integers(1, 999), st.integers(0, 90 * GIB)),
)


@given(meant=shares_of_gpus, given_=shares_of_gpus)
def test_corrections_never_give_more_than_a_gpu_has_and_are_done_once(
    meant: Mapping[str, Mapping[str, ContainerGpus]], given_: Mapping[str, Mapping[str, ContainerGpus]]
) -> None:
    account = an_account(gpus=3)
    for uid, each in meant.items():
        if not account.refusal(each):
            account.pods[uid] = PodShares(pod=f"ns/{uid}", containers=each, assigned_at=0.0)
    after = corrected(account, given_)
    assert all(0 <= gpu.milli <= MILLI_PER_DEVICE and gpu.memory_mib >= 0 for gpu in after.free())
    assert held(corrected(after, given_)) == held(after)


def a_pod(
    uid: str = "a",
    *,
    node: str = "",
    phase: str = "Pending",
    selector: Mapping[str, str] | None = None,
    leaves_at: str | None = None,
) -> Pod:
    metadata = {"name": uid, "namespace": "ns", "uid": uid, "deletionTimestamp": leaves_at}
    spec = {"nodeName": node, "nodeSelector": dict(selector or {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def stale(pod: Pod | None, *, now: float = 0.0, standing: Standing = "nothing") -> list[tuple[str, bool]]:
    pods = {"a": pod} if pod is not None else {}
    found = stale_claimants(an_account({"a": a_share()}), (), pods, lambda uid: standing, now)
    return [(pod_text(each.reason), each.certainty == "certain") for each in found]


def test_share_of_a_pod_that_waits_stays_and_one_of_a_pod_that_ended_goes() -> None:
    assert stale(a_pod()) == []
    assert stale(a_pod(), now=1e9) == []
    assert stale(a_pod(phase="Succeeded")) == [("the pod has ended", True)]


def test_share_of_a_pod_that_is_not_there_goes_only_once_the_api_server_says_so() -> None:
    assert stale(None) == [("the pod is gone", False)]


def test_share_of_a_pod_that_is_being_deleted_goes_unless_it_has_a_node_or_gpus() -> None:
    stamp = "2026-11-27T15:51:53Z"
    assert stale(a_pod(leaves_at=stamp)) == [("the pod is being deleted", False)]
    assert stale(a_pod(leaves_at=stamp), standing="lost") == []
    assert stale(a_pod(node="n", leaves_at=stamp)) == []


def test_share_of_a_pod_with_a_node_goes_where_its_claims_stay_without_gpus_or_have_others() -> None:
    assert stale(a_pod(node="n"), now=UNALLOCATED_S) == []
    assert stale(a_pod(node="n"), now=UNALLOCATED_S + 1) == [("its claims have no GPUs", True)]
    assert stale(a_pod(node="n"), now=UNALLOCATED_S + 1, standing="lost") == []
    assert stale(a_pod(), standing="elsewhere") == [("its claims were given GPUs of another node", True)]


def test_node_whose_gpus_are_claimed_takes_no_pods_of_the_extender_which_need_not_ask_the_log_about_it() -> None:
    accounts, pods = ShareAccounts(), GpuPods(SHARE_RESOURCES)
    nodes = {"n": an_account(), "m": SharingNode(devices=(GpuDevice(memory_mib=GIB),))}
    accounts.load(msgspec.msgpack.encode(nodes))
    closed = ClosedNodes(pods)
    for node in "nm":
        container = {"name": "main", "resources": {"limits": {"elasticgpu.io/gpu-core": "50"}}}
        spec = {"containers": [container], "nodeName": node}
        pods.put(None, msgspec.convert({"metadata": {"name": node, "namespace": "ns", "uid": node}, "spec": spec}, Pod))
        expected = {"n": "the node's GPUs are claimed (dynamic resource allocation)"}
        if node == "m":
            expected["m"] = "GPUs that pod ns/m uses there are not recorded yet"
        assert closed.now(accounts) == expected
        assert closed.may_open == (node == "m")


def a_pod_on_n1(name: str, core: int, **changes: Any) -> Pod:
    body = a_sharing_pod(name, "ns", core, spec={"nodeName": "n1"}, **changes)
    return msgspec.convert({**body, "metadata": {**body["metadata"], "uid": name}}, Pod)


def the_pods(*pods: Pod) -> GpuPods:
    found = GpuPods(SHARE_RESOURCES)
    for pod in pods:
        found.put(None, pod)
    return found


def test_gpu_goes_to_the_pod_that_names_it_and_not_to_one_that_others_bound_without_naming_any() -> None:
    account = SharingNode(devices=(GpuDevice(memory_mib=16_000),))
    names = a_pod_on_n1("names", 70, annotations={f"{GPUS_OF}main": "0", ASSUMED: "true"})
    seen = seen_shares("n1", account, the_pods(a_pod_on_n1("other", 60), names), 0.0, drops_lost=False)
    found = node_facts("n1", account, seen, first_gpu)
    assert ([fact.pod for fact in found.facts], list(found.refused)) == (["ns/names"], ["other"])


@pytest.mark.parametrize("named", [{f"{GPUS_OF}main": "0", ASSUMED: "true"}, {}])
def test_share_of_the_log_never_makes_way_for_a_pod_that_others_bound(named: Mapping[str, str]) -> None:
    has = {"main": ContainerGpus(gpus=(0,), request=GpuRequest(milli=700))}
    account = an_account({"a": has})
    pods = the_pods(a_pod_on_n1("a", 70), a_pod_on_n1("b", 60, annotations=dict(named)))
    found = node_facts("n1", account, seen_shares("n1", account, pods, 0.0, drops_lost=False), first_gpu)
    assert (found.facts, list(found.refused)) == ([], ["b"])


def test_of_gpus_that_are_gone_for_long_pods_keep_what_is_left() -> None:
    both = ContainerGpus(gpus=(0, 1), request=GpuRequest(devices=Gpus(2)))
    account = an_account({"a": {"main": both}, "b": a_share(2)}, gpus=1)
    pods = the_pods(a_pod_on_n1("a", 200), a_pod_on_n1("b", 40))
    assert node_facts("n1", account, seen_shares("n1", account, pods, 0.0, drops_lost=False), first_gpu).facts == []
    found = node_facts("n1", account, seen_shares("n1", account, pods, 0.0, drops_lost=True), first_gpu)
    left = {"main": ContainerGpus(gpus=(0,), request=GpuRequest(devices=Gpus(1)))}
    assert found.facts == [
        ShareReleased(node="n1", pod_uid="b", pod="ns/b", reason=GpusGone(gpus=(2,))),
        ShareReleased(node="n1", pod_uid="a", pod="ns/a", reason=GpusGone(gpus=(1,))),
        ShareAssigned(node="n1", pod_uid="a", pod="ns/a", containers=left),
    ]
