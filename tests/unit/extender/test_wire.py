"""kube-scheduler's extender protocol: read as Go reads it, written as Go writes it."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from voda.domain.errors import InvalidInput
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    read_arguments,
    read_pod,
)


class _Spec(Struct, frozen=True):
    name: str = ""


class _Pod(Struct, frozen=True):
    metadata: _Spec = _Spec()


@pytest.mark.parametrize(
    "names", ["Pod NodeNames Nodes", "pod nodenames nodes", "pod nodeNames nodes", "POD NODENAMES N"]
)
def test_arguments_in_any_letter_case_are_read(names: str) -> None:
    pod, nodenames, nodes = names.split()
    body = {pod: {"metadata": {"name": "p"}, "spec": {"new": []}}, nodenames: ["n1"], nodes: None, "Unknown": {"a": 1}}
    arguments = read_arguments(msgspec.json.encode(body), ExtenderArgs)
    assert arguments.names == ("n1",)
    assert read_pod(arguments.pod, _Pod).metadata.name == "p"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, ()),
        ({"NodeNames": None, "Nodes": None, "Pod": None}, ()),
        ({"NodeNames": None, "Nodes": {"items": None}}, ()),
        ({"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "n"}, "status": {}}]}}, ("n",)),
        ({"NodeNames": [], "Nodes": {"items": [{}]}}, ()),
    ],
)
def test_arguments_with_names_nodes_or_null_say_which_nodes(body: dict[str, Any], names: tuple[str, ...]) -> None:
    arguments = read_arguments(msgspec.json.encode(body), ExtenderArgs)
    assert arguments.names == names
    assert read_pod(arguments.pod, _Pod) == _Pod()


def test_arguments_of_preempt_and_bind_are_read() -> None:
    body = b'{"pod": {}, "nodeNameToVictims": null, "NodeNameToMetaVictims": {"n1": {"Pods": null}, "n2": null}}'
    assert read_arguments(body, ExtenderPreemptionArgs).names == ("n1", "n2")
    binding = read_arguments(
        b'{"podName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "n"}', ExtenderBindingArgs
    )
    assert binding == ExtenderBindingArgs(podname="p", podnamespace="team", poduid="u", node="n")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[1]", "the body: expected `object`, got `array`"),
        (b'{"NodeNames": "n1"}', "the body, nodenames: expected `array"),
        (b'{"NodeNames": [1]}', "the body, nodenames"),
        (b'{"Nodes": {"items": [{"metadata": {"name": 1}}]}}', "the body, nodes.items"),
        (b'{"Pod": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep|not JSON"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused_with_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read_arguments(body, ExtenderArgs)


def test_pod_of_another_type_is_refused_with_its_field() -> None:
    arguments = read_arguments(b'{"Pod": {"metadata": {"name": 1}}}', ExtenderArgs)
    with pytest.raises(InvalidInput, match=r"the pod, metadata\.name: expected `str`, got `int`"):
        read_pod(arguments.pod, _Pod)


def test_answers_have_the_names_that_go_writes() -> None:
    encode = msgspec.json.encode
    assert msgspec.json.decode(encode(ExtenderFilterResult(("n",), {"m": "full"}))) == {
        "NodeNames": ["n"],
        "FailedNodes": {"m": "full"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert encode([HostPriority("n", 7)]) == b'[{"Host":"n","Score":7}]'
    victims = ExtenderPreemptionResult({"n": MetaVictims([MetaPod("u")])})
    assert encode(victims) == b'{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"}],"NumPDBViolations":0}}}'
