"""Nodes take pods as kube-scheduler's filters say."""

from collections.abc import Mapping

import pytest

from tests.builders import a_node
from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration
from voda.domain.reasons.nodes import NotTolerated, OtherLabel
from voda.events.text.nodes import refusal_text
from voda.planner.fit.filters import NodeFilters

NODE = a_node("n1", labels={"zone": "a", "cores": "64", "empty": ""})


def filtered(needs: PodNeeds, node: Node) -> NotTolerated | OtherLabel | None:
    return NodeFilters([node], [needs]).refused(needs).get(0)


def expels(needs: PodNeeds, node: Node) -> bool:
    return bool(NodeFilters([node], [needs]).expelled(needs))


def required(key: str, operator: str, *values: str) -> PodNeeds:
    return PodNeeds(terms=(NodeTerm(labels=(Requirement(key=key, operator=operator, values=values),)),))


@pytest.mark.parametrize(
    ("selector", "takes"),
    [({}, True), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"team": ""}, False), ({"empty": ""}, True)],
)
def test_node_selector_when_each_label_is_that_of_the_node_then_it_takes_the_pod(
    selector: Mapping[str, str], takes: bool
) -> None:
    assert (filtered(PodNeeds(selector=selector), NODE) is None) == takes


@pytest.mark.parametrize(
    ("needs", "takes"),
    [
        (required("zone", "In", "b", "a"), True),
        (required("zone", "In", "b"), False),
        (required("team", "In", "a"), False),
        (required("zone", "NotIn", "b"), True),
        (required("zone", "NotIn", "a"), False),
        (required("team", "NotIn", "a"), True),
        (required("empty", "Exists"), True),
        (required("team", "Exists"), False),
        (required("team", "DoesNotExist"), True),
        (required("zone", "DoesNotExist"), False),
        (required("cores", "Gt", "63"), True),
        (required("cores", "Gt", "64"), False),
        (required("cores", "Lt", "65"), True),
        (required("cores", "Lt", "64"), False),
        (required("zone", "Gt", "1"), False),
        (required("cores", "Lt", "many"), False),
        (required("team", "Lt", "65"), False),
        # The API server takes none of these; a pod that has them all the same is bound nowhere.
        (required("zone", "NotIn"), False),
        (required("zone", "Exists", "a"), False),
        (required("cores", "Gt", "1", "2"), False),
        (required("zone", "Like", "a"), False),
    ],
)
def test_affinity_when_a_term_has_one_requirement_then_its_operator_decides(needs: PodNeeds, takes: bool) -> None:
    assert (filtered(needs, NODE) is None) == takes


def test_affinity_when_there_are_several_terms_then_one_that_is_met_whole_is_enough() -> None:
    zone_a, zone_b = (Requirement(key="zone", values=(zone,)) for zone in "ab")
    team = Requirement(key="team", operator="Exists")
    assert filtered(PodNeeds(terms=(NodeTerm(labels=(zone_b,)), NodeTerm(labels=(zone_a,)))), NODE) is None
    assert filtered(PodNeeds(terms=(NodeTerm(labels=(zone_a, team)), NodeTerm(labels=(zone_b,)))), NODE) is not None
    for none_to_meet in ((), (NodeTerm(),)):
        assert filtered(PodNeeds(terms=none_to_meet), NODE) is not None
    assert filtered(PodNeeds(selector={"zone": "b"}, terms=(NodeTerm(labels=(zone_a,)),)), NODE) is not None


def test_affinity_when_it_names_nodes_then_by_their_name_alone() -> None:
    def named(operator: str, *values: str, key: str = "metadata.name") -> PodNeeds:
        return PodNeeds(terms=(NodeTerm(fields=(Requirement(key=key, operator=operator, values=values),)),))

    assert filtered(named("In", "n1"), NODE) is None
    assert filtered(named("In", "n2"), NODE) is not None
    assert filtered(named("NotIn", "n2"), NODE) is None
    assert filtered(named("In", "a", key="zone"), NODE) is not None


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration(key="dedicated", value="vision", effect="NoSchedule"), True),
        (Toleration(key="dedicated", operator="", value="vision"), True),
        (Toleration(key="dedicated", value="speech", effect="NoSchedule"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(key="dedicated", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="dedicated", operator="Lt", value="3"), False),
    ],
)
def test_taint_when_a_toleration_matches_then_the_node_takes_the_pod(toleration: Toleration, tolerates: bool) -> None:
    node = a_node(taints=(Taint(key="dedicated", value="vision"),))
    assert (filtered(PodNeeds(tolerations=(toleration,)), node) is None) == tolerates


def test_taint_when_its_value_is_a_number_then_tolerations_may_compare_it() -> None:
    node = a_node(taints=(Taint(key="sla", value="950"),))
    for operator, value, tolerates in (("Gt", "900", True), ("Gt", "950", False), ("Lt", "951", True)):
        needs = PodNeeds(tolerations=(Toleration(key="sla", operator=operator, value=value),))
        assert (filtered(needs, node) is None) == tolerates


def test_taints_when_one_of_several_is_not_tolerated_then_it_is_named() -> None:
    node = a_node(taints=(Taint(key="a"), Taint(key="b", value="1", effect="NoExecute")))
    needs = PodNeeds(tolerations=(Toleration(key="a", operator="Exists"),))
    why = filtered(needs, node)
    assert why is not None
    assert refusal_text(why) == "its taint b=1:NoExecute is not tolerated"
    assert expels(needs, node)
    assert not expels(PodNeeds(), a_node(taints=(Taint(key="a"),)))


def test_labels_when_a_node_has_others_then_what_is_required_is_said() -> None:
    def said(needs: PodNeeds) -> str:
        why = filtered(needs, NODE)
        return "" if why is None else refusal_text(why)

    assert said(PodNeeds(selector={"zone": "b"})) == "workers require zone=b, it has zone=a"
    assert said(PodNeeds(selector={"team": "x"})) == "workers require team=x, it has no such label"
    assert said(required("zone", "NotIn", "a", "b")) == "workers require zone NotIn (a, b), it has zone=a"
    assert said(required("zone", "DoesNotExist")) == "workers require no label zone, it has zone=a"
    assert said(required("cores", "Gt", "64")) == "workers require cores Gt 64, it has cores=64"
