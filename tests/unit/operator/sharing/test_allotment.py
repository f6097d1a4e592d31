"""GPUs for one pod that claims after the other."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from voda.cluster.kubernetes.objects import Pod
from voda.domain.gpus import GpuDevice, GpuRequest, Gpus
from voda.domain.shares import SharingNode
from voda.operator.sharing.claims.allotment import (
    Allotment,
    ChosenGpus,
    Claimant,
    ClosedAccounts,
    NoRoom,
    OpenNode,
)
from voda.sharing.rating.gpu_chooser import GpuChooser
from voda.sharing.rating.raters import RATERS

GIB = 1_024


def a_pod(uid: str, selector: Mapping[str, str] | None = None) -> Pod:
    spec = {"nodeSelector": dict(selector or {})}
    return msgspec.convert({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": spec}, Pod)


def an_account(gpus: int = 1) -> SharingNode:
    """Return an account of GPUs of 80 GiB of which nobody has any."""
    return SharingNode(devices=tuple(GpuDevice(memory_mib=80 * GIB, name=f"d/n/gpu-{each}") for each in range(gpus)))


def an_allotment(*nodes: OpenNode, rater: str = "binpack") -> Allotment:
    there = {f"n{number}": each for number, each in enumerate(nodes)}
    return Allotment(GpuChooser(RATERS[rater]), there, ClosedAccounts())


def an_open_node(account: SharingNode | None = None, closed: tuple[int, ...] = (), **labels: str) -> OpenNode:
    return OpenNode(account=account or an_account(), labels=labels, closed_gpus=dict.fromkeys(closed, "tainted"))


def choose(allotment: Allotment, uid: str, milli: int = 400, **changes: object) -> str | tuple[str, int]:
    """Return node and GPU of a pod, or why there are none."""
    requests = {"gpu": GpuRequest(milli=milli, memory_mib=20 * GIB)}
    avoided = changes.pop("avoided", ())
    claimant = Claimant(pod=a_pod(uid, **changes), claims={}, requests=requests, avoided=avoided)  # type: ignore[arg-type]
    found = allotment.choose(claimant)
    if isinstance(found, NoRoom):
        return found.reason
    return found.node, found.containers["gpu"].gpus[0]


def refusal(allotment: Allotment, claimant: Claimant) -> str:
    """Return why a pod finds no room."""
    found = allotment.choose(claimant)
    assert isinstance(found, NoRoom)
    return found.reason


def test_second_pod_shares_the_gpu_and_a_third_is_told_what_is_left() -> None:
    allotment = an_allotment(an_open_node())
    assert [choose(allotment, uid) for uid in "ab"] == [("n0", 0), ("n0", 0)]
    told = "0/1 nodes with GPUs to claim have room: 1 too little is left of the node's GPUs for gpu (400 milli, 20480"
    assert str(choose(allotment, "c")).startswith(told)
    assert choose(allotment, "d", milli=200) == ("n0", 0)


def test_pod_gets_as_many_whole_gpus_as_it_asks_for_or_is_told_how_many_these_are() -> None:
    allotment = an_allotment(an_open_node(an_account(2)), an_open_node(an_account(4)))
    requests = {"pair": GpuRequest(devices=Gpus(2)), "part": GpuRequest(milli=400)}
    found = allotment.choose(Claimant(pod=a_pod("a"), claims={}, requests=requests))
    assert isinstance(found, ChosenGpus)
    assert found.node == "n1"
    assert {name: len(each.gpus) for name, each in found.containers.items()} == {"pair": 2, "part": 1}
    told = refusal(allotment, Claimant(pod=a_pod("b"), claims={}, requests={"gpu": GpuRequest(devices=Gpus(4))}))
    text = "gpu (4 whole GPUs)"
    assert told == (
        f"0/2 nodes with GPUs to claim have room: 1 the node's GPUs are too few or too small for {text},"
        f" 1 too little is left of the node's GPUs for {text}"
    )


def test_pod_is_told_of_its_own_claim_though_another_one_asked_for_as_much() -> None:
    allotment, request = an_allotment(an_open_node()), GpuRequest(milli=900, memory_mib=90 * GIB)
    for name in ("secret", "mine"):
        told = refusal(allotment, Claimant(pod=a_pod(name), claims={}, requests={name: request}))
        assert f"for {name} (900 milli" in told


def test_pod_gets_no_gpu_that_is_closed_or_of_a_node_that_it_does_not_select_or_avoids() -> None:
    nodes = (an_open_node(an_account(2), closed=(0,), zone="a"), an_open_node(zone="b"))
    allotment = an_allotment(*nodes)
    assert choose(allotment, "a", selector={"zone": "a"}) == ("n0", 1)
    assert choose(allotment, "b", avoided=("n0",)) == ("n1", 0)
    told = choose(allotment, "c", selector={"zone": "c"})
    reason = "2 the pod does not select the node, or kube-scheduler refused it there"
    left_alone = "GPUs that voda leaves alone: 1 tainted"
    assert told == f"0/2 nodes with GPUs to claim have room: {reason}; {left_alone}"
    assert choose(an_allotment(), "d") == "0/0 nodes with GPUs to claim have room: none is ready"


def test_chooser_when_a_round_only_imagined_an_account_reads_it_anew_in_the_next() -> None:
    chooser, node = GpuChooser(RATERS["binpack"]), an_open_node()
    closed = ClosedAccounts()
    first = Allotment(chooser, {"n0": node}, closed)
    assert [choose(first, uid) for uid in "ab"] == [("n0", 0), ("n0", 0)]
    # Nothing of it came into the log.
    assert choose(Allotment(chooser, {"n0": node}, closed), "c", milli=900) == ("n0", 0)


def test_account_with_closed_gpus_is_made_anew_only_where_something_changed() -> None:
    closed, node = ClosedAccounts(), OpenNode(account=an_account(2), labels={}, closed_gpus={1: "tainted"})
    made = closed.accounts({"n0": node})["n0"]
    assert [left.is_whole for left in made.free()] == [True, False]
    assert closed.accounts({"n0": node})["n0"] is made
    opened = closed.accounts({"n0": replace(node, closed_gpus={})})["n0"]
    assert [left.is_whole for left in opened.free()] == [True, True]
    assert closed.accounts({"n0": node})["n0"].version not in (made.version, opened.version)
    closed.accounts({})
    assert closed.accounts({"n0": node})["n0"] is not made


def test_pod_goes_to_no_node_that_has_less_than_it_requests_and_one_that_does_not_say_counts_as_large_enough() -> None:
    small, silent = (OpenNode(account=an_account(), labels={}, amounts=each) for each in ({"cpu": 4_000}, {}))
    pod = Claimant(pod=a_pod("a"), claims={}, requests={"gpu": GpuRequest(milli=400)}, amounts={"cpu": 4_001})
    told = refusal(an_allotment(small), pod)
    assert told == ("0/1 nodes with GPUs to claim have room: 1 the node has less CPU or memory than the pod requests")
    found = an_allotment(small, silent).choose(pod)
    assert isinstance(found, ChosenGpus)
    assert found.node == "n1"
