"""The claims of a pod, and those that select the GPUs which were chosen for it."""

from collections.abc import Mapping
from typing import Any

from tests.kube.client import Object
from tests.kube.devices import CLASS, a_gpu
from tests.unit.cluster.kubernetes.state.test_claimed_amounts import (
    a_claim,
    a_pod,
    a_request,
    a_result,
    gpus_of,
    read,
    some,
)
from voda.cluster.kubernetes.state.chosen_claims import chosen_claims, claims_of_pod, pinned_claim, replaced_claims
from voda.domain.gpus import ContainerGpus, GpuRequest, Gpus


def test_claims_of_a_pod_are_unknown_until_all_of_them_are_made_and_mirrored() -> None:
    claim = read(a_claim(a_request()))
    assert claims_of_pod(a_pod(claim=""), {}) is None
    assert claims_of_pod(a_pod(), {}) is None
    assert claims_of_pod(a_pod(), {"ns/a-gpu-x1": claim}) == {"gpu": claim}


def test_claim_that_was_to_take_the_place_of_one_that_is_gone_stands_in_for_it() -> None:
    like = a_claim(a_request(), name="a-chosen")
    like["metadata"]["annotations"]["voda.dev/cards"] = "gpu.example.com/n1/gpu-0"
    chosen, strange = read(like), read({**like, "metadata": {**like["metadata"], "namespace": "elsewhere"}})
    assert claims_of_pod(a_pod(), {}, [read(a_claim(a_request(), name="b")), chosen]) == {"gpu": chosen}
    assert claims_of_pod(a_pod(), {}, [strange]) is None
    # Anybody can say that a claim is a pod's.
    assert claims_of_pod(a_pod(), {}, [chosen, strange]) == {"gpu": chosen}


def test_pinned_claim_selects_its_gpu_and_when_pinned_again_the_other_one_alone() -> None:
    like = a_claim({"name": "part", "exactly": {"deviceClassName": CLASS, "selectors": [cel("own")]}})
    like["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    first = pinned_claim(like, "b", {"part": "GPU 1"}, "one")
    again = pinned_claim(first, "c", {"part": "GPU 2"}, "two")
    assert selectors(first) == [cel("own"), cel("GPU 1")]
    assert selectors(again) == [cel("own"), cel("GPU 2")]
    assert selectors(like) == [cel("own")]
    [owner] = like["metadata"]["ownerReferences"]
    assert again["metadata"]["ownerReferences"] == [{**owner, "blockOwnerDeletion": False}]
    assert "uid" not in again["metadata"]


def cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def selectors(claim: Mapping[str, Any]) -> Any:
    return claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"]


def test_chosen_claim_has_another_name_for_each_gpu_and_knows_when_it_is_chosen() -> None:
    gpus = gpus_of(a_gpu("n1", 0), a_gpu("n1", 1))
    claims, pod = {"gpu": read(a_claim(a_request()))}, a_pod()
    request = GpuRequest(milli=1)
    names = set()
    for gpu in (0, 1):
        found = chosen_claims(claims, {"gpu": ContainerGpus(gpus=(gpu,), request=request)}, "n1", gpus)
        names.add(found["gpu"].name(pod))
        assert found["gpu"].selectors == {"part": gpus.selector(gpus.nodes["n1"][gpu])}
        assert not found["gpu"].is_chosen(pod)
    assert len(names) == 2
    taken, pod = {"gpu": read(a_claim(a_request(), name=min(names)))}, a_pod(claim=min(names))
    chosen = [
        chosen_claims(taken, {"gpu": ContainerGpus(gpus=(gpu,), request=request)}, "n1", gpus)["gpu"].is_chosen(pod)
        for gpu in (0, 1)
    ]
    assert sorted(chosen) == [False, True]


def test_chosen_claim_that_is_to_be_made_anew_is_chosen_once_its_number_is_as_high() -> None:
    gpus = gpus_of(a_gpu("n1", 0))
    claims = {"gpu": read(a_claim(a_request()))}
    shares = {"gpu": ContainerGpus(gpus=(0,), request=GpuRequest(milli=1))}
    first, second = (chosen_claims(claims, shares, "n1", gpus, renewals=renewals)["gpu"] for renewals in (0, 2))
    name = first.name(a_pod())
    assert second.name(a_pod()) == f"{name}-2"
    named = {name: 0, f"{name}-1": 1, f"{name}-2": 2, f"{name}-30": 30, f"{name}-": -1, f"{name}2": -1, "": -1}
    for there, renewals in {**named, f"{name}-1a": -1, f"{name}-\u0663": -1, f"x{name}": -1}.items():
        pod = a_pod(claim=there)
        assert first.renewals_of(pod) == renewals
        assert (first.is_chosen(pod), second.is_chosen(pod)) == (renewals >= 0, renewals >= 2)


def test_chosen_claim_of_several_gpus_selects_all_of_them_whatever_their_request_is_called() -> None:
    gpus = gpus_of(*(a_gpu("n1", number) for number in range(4)))
    pair = ContainerGpus(gpus=(1, 3), request=GpuRequest(devices=Gpus(2)))
    one = {"gpu/part": ContainerGpus(gpus=(0,), request=GpuRequest(milli=1))}
    claims = {"gpu": read(a_claim({**some(2), "name": "pair"}, a_request()))}
    found = chosen_claims(claims, {"gpu/pair": pair, **one}, "n1", gpus)["gpu"]
    there = gpus.nodes["n1"]
    assert found.selectors == {"pair": gpus.selector(there[1], there[3]), "part": gpus.selector(there[0])}
    assert found.gpus == tuple(there[number].name for number in (1, 3, 0))


def test_replaced_claims_are_those_without_devices_that_a_pod_with_a_node_does_not_name() -> None:
    used, left = read(a_claim(a_request())), read(a_claim(a_request(), name="former"))
    held = read(a_claim(a_request(), name="held", results=[a_result("gpu-0")]))
    made_by_a_user = a_claim(a_request(), name="own")
    del made_by_a_user["metadata"]["annotations"]
    claims = {each.metadata.key: each for each in (used, left, held, read(made_by_a_user))}
    assert replaced_claims(a_pod("n1"), claims) == [left]
    assert not replaced_claims(a_pod(), claims)
    assert not replaced_claims(a_pod("n1", claim=""), claims)
