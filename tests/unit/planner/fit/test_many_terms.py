"""Filters say of many nodes and terms at once what they say of each, and their work is bounded."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

from tests.builders import a_job, a_node, a_state
from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration
from voda.domain.reasons.nodes import NotTolerated, OtherLabel
from voda.planner.fit.filters import NodeFilters
from voda.planner.fit.node_fit import with_fit

DRAWS = 400
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST: Final = 2**63 - 1
NAME = "metadata.name"
VALUES = ("a", "b", "1", "2", "-3", "04", "")


def a_drawn_node(random: Random, name: str) -> Node:
    labels = {key: random.choice(VALUES) for key in ("zone", "cores", NAME) if random.random() < 0.6}
    taints = [
        Taint(key=key, value=random.choice(VALUES), effect=random.choice(("NoSchedule", "NoExecute")))
        for key in ("zone", "team")
        if random.random() < 0.3
    ]
    return a_node(name, labels=labels, taints=tuple(taints))


def a_drawn_requirement(random: Random, key: str, values: tuple[str, ...]) -> Requirement:
    operator = random.choice(("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"))
    return Requirement(key=key, operator=operator, values=tuple(random.choices(values, k=random.choice((0, 1, 1, 3)))))


def drawn_needs(random: Random, names: tuple[str, ...]) -> PodNeeds:
    terms = [
        NodeTerm(
            labels=tuple(
                a_drawn_requirement(random, random.choice(("zone", "cores", "absent", NAME)), VALUES)
                for _ in range(random.choice((0, 0, 1, 2)))
            ),
            fields=tuple(
                a_drawn_requirement(random, random.choice((NAME, NAME, NAME, "zone")), names)
                for _ in range(random.choice((0, 1, 1, 2)))
            ),
        )
        for _ in range(random.randint(0, 5))
    ]
    tolerations = [
        Toleration(
            key=random.choice(("zone", "team", "")),
            operator=random.choice(("Equal", "Exists", "Gt", "Lt")),
            value=random.choice(VALUES),
            effect=random.choice(("", "NoSchedule", "NoExecute")),
        )
        for _ in range(random.randint(0, 3))
    ]
    return PodNeeds(
        selector={key: random.choice(VALUES) for key in ("zone", "absent") if random.random() < 0.15},
        terms=random.choice((None, tuple(terms), tuple(terms))),
        tolerations=tuple(tolerations),
    )


def test_filters_when_nodes_and_terms_are_drawn_then_they_say_of_all_nodes_what_they_say_of_each() -> None:
    random = Random(7)
    taken = refused = 0
    for _ in range(DRAWS):
        names = tuple(f"n{at}" for at in range(random.randint(1, 9)))
        nodes = [a_drawn_node(random, name) for name in names]
        needs = [drawn_needs(random, (*names, "gone", "5")) for _ in range(3)]
        filters = NodeFilters(nodes, needs)
        for each in needs:
            plain = {at: why for at, node in enumerate(nodes) if (why := filtered(each, node)) is not None}
            assert filters.refused(each) == plain
            expelled = {at for at, node in enumerate(nodes) if expels(each, node)}
            assert {*filters.expelled(each)} == expelled
            refused += len(plain)
            taken += len(nodes) - len(plain)
    assert min(taken, refused) > DRAWS


def test_refusals_when_a_job_names_nodes_then_those_of_others_are_as_without_it() -> None:
    nodes = [a_node(f"n{at}", labels={"zone": "ab"[at % 2]}) for at in range(6)]
    zone = a_job("zone", needs=PodNeeds(selector={"zone": "a"}))
    field = Requirement(key=NAME, values=("n3",))
    named = a_job("named", needs=PodNeeds(terms=(NodeTerm(fields=(field,)),)))
    alone, both = (with_fit(a_state(jobs=jobs, nodes=nodes)).jobs for jobs in ([zone], [zone, named]))
    assert both["zone"].refusals == alone["zone"].refusals
    assert [*alone["zone"].refusals] == ["n1", "n3", "n5"]
    assert {*both["named"].refusals} == {node.name for node in nodes} - {"n3"}


class CountedLabels(dict[str, str]):
    """Labels of a node that count how often one is looked up."""

    looks = 0

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        CountedLabels.looks += 1
        return super().get(key, default)


class CountedTolerations(tuple[Toleration, ...]):
    """Tolerations of a pod that count how often they are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[Toleration]:
        CountedTolerations.rounds += 1
        return super().__iter__()


def test_work_when_all_taints_differ_then_tolerations_are_not_gone_through_by_node() -> None:
    nodes = [a_node(f"n{at}", taints=(Taint(key="own", value=f"{at}", effect="NoExecute"),)) for at in range(50)]
    needs = PodNeeds(tolerations=CountedTolerations(Toleration(key="own", value=f"{at}") for at in range(20)))
    filters = NodeFilters(nodes, [needs])
    CountedTolerations.rounds = 0
    assert [*filters.refused(needs)] == filters.expelled(needs) == [*range(20, 50)]
    assert CountedTolerations.rounds == 2


def test_work_when_jobs_have_many_terms_then_labels_are_not_looked_up_by_job_and_term() -> None:
    nodes = [a_node(f"n{at}", labels=CountedLabels(host=f"n{at}")) for at in range(20)]
    terms = [Requirement(key="host", operator="NotIn", values=("n3", f"m{at}")) for at in range(64)]
    jobs = [
        a_job(f"j{at}", needs=PodNeeds(terms=tuple(NodeTerm(labels=(each,)) for each in terms[at:])))
        for at in range(20)
    ]
    view = with_fit(a_state(jobs=jobs, nodes=nodes))
    assert all([*view.jobs[f"j{at}"].refusals] == ["n3"] for at in range(20))
    assert CountedLabels.looks <= 2 * len(nodes)


# ---- The same, asked of one node, term by term.


def filtered(needs: PodNeeds, node: Node) -> NotTolerated | OtherLabel | None:
    """Return why a node's taints or labels keep such a pod off it; None: they do not."""
    if (taint := _untolerated(needs.tolerations, node.taints)) is not None:
        return NotTolerated(key=taint.key, value=taint.value, effect=taint.effect)
    for key, value in needs.selector.items():
        if node.labels.get(key) != value:
            return OtherLabel(key=key, values=(value,), found=node.labels.get(key))
    return None if needs.terms is None else _outside(needs.terms, node)


def expels(needs: PodNeeds, node: Node) -> bool:
    """Return whether such a pod may not even stay on the node: it does not tolerate a taint NoExecute."""
    evicting = [taint for taint in node.taints if taint.effect == "NoExecute"]
    return bool(evicting) and _untolerated(needs.tolerations, evicting) is not None


def _untolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    return next((taint for taint in taints if not any(_tolerates(each, taint) for each in tolerations)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case operator:
            return _compares(operator, taint.value, toleration.value)


def _outside(terms: Sequence[NodeTerm], node: Node) -> OtherLabel | None:
    """Return the first requirement that a node does not meet, where it meets no term."""
    missed = [_missed(term, node) for term in terms]
    if None in missed:
        return None
    first = next(filter(None, missed), OtherLabel(key="", operator="In"))
    return OtherLabel(
        key=first.key,
        operator=first.operator,
        values=first.values,
        found=first.found,
        others=max(0, len(terms) - 1),
    )


def _missed(term: NodeTerm, node: Node) -> OtherLabel | None:
    for requirement in term.labels:
        if not _is_met(requirement, node.labels):
            return _other(requirement, node.labels.get(requirement.key))
    for requirement in term.fields:
        if not (requirement.key == NAME and _is_met(requirement, {NAME: node.name})):
            return _other(requirement, node.name)
    return None if term.labels or term.fields else OtherLabel(key="", operator="In")


def _other(requirement: Requirement, found: str | None) -> OtherLabel:
    return OtherLabel(key=requirement.key, operator=requirement.operator, values=requirement.values, found=found)


def _is_met(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    found, values = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return found in values and found is not None
        case "NotIn":
            return bool(values) and found not in values
        case "Exists":
            return found is not None and not values
        case "DoesNotExist":
            return found is None and not values
        case operator:
            return found is not None and len(values) == 1 and _compares(operator, found, values[0])


def _compares(operator: str, found: str, bound: str) -> bool:
    """Return whether one number is above another (Gt) or below it (Lt); False where either is none."""
    left, right = _number(found), _number(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else operator == "Lt" and left < right


def _number(text: str) -> int | None:
    value = int(text) if _INTEGER.fullmatch(text) else None
    return value if value is not None and -_LARGEST - 1 <= value <= _LARGEST else None
