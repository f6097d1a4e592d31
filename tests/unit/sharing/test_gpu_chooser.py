"""Nodes and GPUs chosen by the accounts of shares: followed as they change, by every rater, as if rated anew."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sharing import share, whole
from voda.changed_keys import ChangedKeys
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest
from voda.domain.shares import GpuRemainder, PodShares, SharingNode
from voda.sharing.rating.gpu_chooser import HIGHEST, GpuChooser
from voda.sharing.rating.nodes import Floats, NodeArrays
from voda.sharing.rating.pod import PodRequest
from voda.sharing.rating.raters import RATERS, RatingContext
from voda.sharing.rating.raters.binpack import Binpack

GPU = GpuDevice(memory_mib=16_000)


def accounts(nodes: int = 3, gpus: int = 2) -> dict[str, SharingNode]:
    return {f"n{number}": SharingNode(devices=(GPU,) * gpus) for number in range(nodes)}


def a_request(*containers: GpuRequest) -> PodRequest:
    return PodRequest(containers=containers)


def give(account: SharingNode, uid: str, request: GpuRequest, *gpus: int) -> None:
    """Give a pod its GPUs, as an event does."""
    containers = {"main": ContainerGpus(gpus=gpus, request=request)}
    account.pods[uid] = PodShares(pod=f"ns/{uid}", containers=containers, assigned_at=0.0)
    account.version += 1


def chooser_of(found: dict[str, SharingNode], pod: PodRequest, rater: str = "binpack") -> GpuChooser:
    chooser = GpuChooser(RATERS[rater])
    chooser.follow(found, pod)
    return chooser


@pytest.mark.parametrize("rater", list(RATERS))
@pytest.mark.parametrize("request_", [share(300), share(300, 4_000), share(0, 4_000), whole(1), whole(2)], ids=str)
def test_any_rater_when_nothing_is_used_prefers_one_node_alone_and_picks_gpus_there(
    rater: str, request_: GpuRequest
) -> None:
    pod = a_request(request_)
    chooser = chooser_of(accounts(), pod, rater)
    found = chooser.preferences(["n2", "n0", "n1", "other"], pod, "u")
    assert found.keys() == {"n0", "n1", "n2"}
    assert sorted(found.values())[-2] < HIGHEST == max(found.values())
    gpus = chooser.gpus(max(found, key=lambda name: found[name]), pod, "u")
    assert gpus is not None
    assert [len(each) for each in gpus] == [request_.count]


def test_first_of_equal_nodes_is_preferred_whatever_the_order_of_the_question() -> None:
    pod = a_request(share(300))
    chooser = chooser_of(accounts(), pod)
    assert chooser.preferences(["n2", "n1", "n0"], pod, "u") == {"n2": 9, "n1": 9, "n0": 10}


@pytest.mark.parametrize("rater", list(RATERS))
@pytest.mark.parametrize("most", [1, 3])
def test_choice_of_so_many_nodes_has_the_one_that_is_best_of_all(rater: str, most: int) -> None:
    found, pod = accounts(6, 2), a_request(share(300))
    for number, milli in enumerate((100, 600, 900, 300, 600, 900)):
        give(found[f"n{number}"], f"u{number}", share(milli), number % 2)
    chooser = chooser_of(found, pod, rater)
    everywhere = chooser.preferences(list(found), pod, "u")
    chosen = chooser_of(found, pod, rater).choice(list(found), pod, "u", most=most)
    assert len(chosen.wanted) == most
    assert not chosen.unfit
    assert [name for name, each in chosen.wanted.items() if each == HIGHEST] == [
        name for name, each in everywhere.items() if each == HIGHEST
    ]


class CountingBinpack(Binpack):
    """Counts the nodes that it scores."""

    def __init__(self) -> None:
        self.scored = 0

    def score(self, before: NodeArrays, after: NodeArrays, context: RatingContext) -> Floats:
        self.scored += len(before.index)
        return super().score(before, after, context)


def test_scores_that_do_not_depend_on_the_expected_pods_are_kept_when_others_are_expected() -> None:
    found, pod, changes, rater = accounts(50, 8), a_request(share(100)), ChangedKeys(), CountingBinpack()
    chooser = GpuChooser(rater)
    for number in range(300):
        chooser.follow(found, pod, changes)
        wanted = chooser.preferences(tuple(found), pod, "u")
        best = max(wanted, key=lambda name: wanted[name])
        gpus = chooser.gpus(best, pod, "u")
        assert gpus is not None
        give(found[best], f"u{number}", share(100), *gpus[0])
        changes.add(best)
    # Each node once, and then those that changed; full ones have no score.
    assert rater.scored <= len(found) + 299


def test_accounts_that_are_followed_by_their_changes_are_rated_as_if_all_were_compared() -> None:
    found, pod, changes = accounts(3, 1), a_request(share(600)), ChangedKeys()
    chooser = GpuChooser(RATERS["binpack"])
    for step in range(5):
        chooser.follow(found, pod, changes)
        names = list(found)
        assert chooser.preferences(names, pod, "u") == chooser_of(found, pod).preferences(names, pod, "u")
        changed = f"n{step}"
        match step:
            case 0 | 1:
                give(found[changed], f"u{step}", share(600), 0)
            case 2:
                found[changed].devices = (GPU, GPU)
            case 3:
                found[changed] = SharingNode(devices=(GPU,))
        changes.add(changed)


def test_account_when_it_changes_is_followed() -> None:
    found, pod = accounts(2, 1), a_request(share(600))
    chooser = chooser_of(found, pod)
    give(found["n0"], "a", share(600), 0)
    chooser.follow(found, pod)
    assert chooser.preferences(["n0", "n1"], pod, "u").keys() == {"n1"}
    assert chooser.gpus("n0", pod, "u") is None
    found["n0"].pods.clear()
    found["n0"].version += 1
    found["n2"] = SharingNode(devices=(GPU, GPU))
    del found["n1"]
    chooser.follow(found, pod)
    assert chooser.preferences(["n0", "n1", "n2"], pod, "u").keys() == {"n0", "n2"}


def test_node_when_its_gpus_change_is_read_anew() -> None:
    found, pod = accounts(1, 1), a_request(share(300, 17_000))
    chooser = chooser_of(found, pod)
    assert reasons(chooser, ["n0"], pod) == {"n0": "the node's GPUs are too few or too small for all"}
    found["n0"].devices = (GpuDevice(memory_mib=20_000),)
    chooser.follow(found, pod)
    assert chooser.gpus("n0", pod, "u") == ((0,),)


def test_refusal_is_final_where_an_unused_node_would_not_do_either() -> None:
    found, pod = accounts(2, 2), a_request(whole(2))
    found["n1"].devices = (GPU,)
    found["n2"] = SharingNode()
    give(found["n0"], "a", share(100), 0)
    assert reasons(chooser_of(found, pod), ["n0", "n1", "n2", "n9"], pod) == {
        "n0": "too little is left of the node's GPUs for all",
        "n1": "the node's GPUs are too few or too small for all",
        "n2": "the node has no GPUs to share",
        "n9": "the node has no GPUs to share",
    }
    (_, first), *others = said = chooser_of(found, pod).refusals(["n0", "n1"], pod, "all")
    assert (first, len(others), [each.is_final for each, _ in said]) == (["n0"], 1, [False, True])
    assert reasons(chooser_of({}, pod), ["n0"], pod) == {"n0": "the node has no GPUs to share"}


def reasons(chooser: GpuChooser, names: Sequence[str], pod: PodRequest) -> Mapping[str, str]:
    return {name: each.reason for each, nodes in chooser.refusals(names, pod, "all") for name in nodes}


def test_pod_that_would_fit_without_others_is_seen_to_fit() -> None:
    found, pod = accounts(1, 2), a_request(whole(1))
    chooser = chooser_of(found, pod)
    half, all_of_it = (GpuRemainder(milli=milli, memory_mib=16_000, is_whole=milli == 1000) for milli in (500, 1000))
    assert not chooser.fits_with("n0", (half, half), pod)
    assert chooser.fits_with("n0", (half, all_of_it), pod)
    assert not chooser.fits_with("n9", (all_of_it,), pod)


SHARES = st.builds(share, st.integers(1, 999), st.sampled_from([0, 2_000, 9_000]))
STEPS = st.lists(st.tuples(st.one_of(SHARES, st.sampled_from([whole(1), whole(2)])), st.booleans()), max_size=12)


@given(STEPS, st.sampled_from(["binpack", "spread", "topology"]))
def test_chooser_that_follows_answers_as_one_that_reads_all_anew_and_gives_only_what_is_free(
    steps: list[tuple[GpuRequest, bool]], rater: str
) -> None:
    found = accounts(3, 2)
    names = list(found)
    chooser = GpuChooser(RATERS[rater])
    for number, (request, leaves) in enumerate(steps):
        pod = a_request(request)
        chooser.follow(found, pod)
        anew = chooser_of(found, pod, rater)
        wanted = chooser.preferences(names, pod, "u")
        assert wanted == anew.preferences(names, pod, "u")
        for name in names:
            assert chooser.gpus(name, pod, "u") == anew.gpus(name, pod, "u")
        if wanted:
            node = found[max(wanted, key=lambda name: wanted[name])]
            [gpus] = chooser.gpus(max(wanted, key=lambda name: wanted[name]), pod, "u") or ()
            assert node.refusal({"main": ContainerGpus(gpus=gpus, request=request)}) == ""
            give(node, f"u{number}", request, *gpus)
        if leaves and (node := found["n0"]).pods:
            del node.pods[next(iter(node.pods))]
            node.version += 1
