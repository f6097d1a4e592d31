"""Labels and selectors mean what they mean to Kubernetes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidField
from voda.domain.labels import checked_labels, matches, parse_selector

LABELS = {"team": "vision", "tier": "prod", "example.com/gpu": ""}


@pytest.mark.parametrize(
    ("selector", "is_match"),
    [
        ("", True),
        ("  ", True),
        ("team=vision", True),
        ("team==vision, tier = prod", True),
        ("team=speech", False),
        ("team!=speech", True),
        ("team!=vision", False),
        ("owner!=ann", True),
        ("team", True),
        ("owner", False),
        ("!owner", True),
        ("! team", False),
        ("tier in (dev, prod),team", True),
        ("tier notin (dev,test)", True),
        ("tier notin (dev,prod)", False),
        ("owner notin (ann)", True),
        ("owner in (ann)", False),
        ("example.com/gpu", True),
        ("example.com/gpu=", True),
        ("example.com/gpu!=", False),
        ("team=vision,tier=dev", False),
    ],
)
def test_selector_chooses_as_kubernetes_does(selector: str, is_match: bool) -> None:
    assert matches(parse_selector(selector), LABELS) is is_match


@pytest.mark.parametrize(
    ("selector", "wrong"),
    [
        (",", "''"),
        ("a,", "''"),
        ("a b", "'a b'"),
        ("a in b", "'a in b'"),
        ("a in (b", "'a in (b'"),
        ("=b", "'=b'"),
        ("a=b c", "'a=b c'"),
        ("a=-b", "'a=-b'"),
        ("team=vision,tier>3", "'tier>3'"),
        ("a," * 60 + "a", "'a,a"),
        ("a" * 3_000, "'aaa"),
    ],
)
def test_selector_when_wrong_is_refused_and_the_part_named(selector: str, wrong: str) -> None:
    with pytest.raises(InvalidField, match="expected labels such as team=vision") as refused:
        parse_selector(selector)
    assert f"got {wrong}" in str(refused.value)


@given(st.text(max_size=40))
def test_selector_is_read_or_refused_whatever_it_is(text: str) -> None:
    with suppress(InvalidField):
        assert matches(parse_selector(text), LABELS) in (True, False)


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ({"a b": "c"}, "metadata.labels[a b]"),
        ({"": "c"}, "metadata.labels[]"),
        ({"a": "b c"}, "metadata.labels[a]"),
        ({"a": "x" * 64}, "metadata.labels[a]"),
        ({"a/b/c": "d"}, "metadata.labels[a/b/c]"),
        ({f"k{number}": "v" for number in range(101)}, "metadata.labels"),
        ({f"{'p' * 60}.{number}/k": "v" * 60 for number in range(80)}, "metadata.labels"),
    ],
)
def test_labels_that_kubernetes_would_refuse_are_refused(labels: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        checked_labels(labels)
    assert refused.value.field == field


def test_labels_that_are_good_stay_as_they_are() -> None:
    labels = {"a": "", "example.com/k_8.s-x": "V-1.2_z", "voda.dev/managed": "true"}
    assert checked_labels(labels) == labels


def test_labels_and_selectors_are_taken_up_to_their_bounds() -> None:
    most = {f"k{number}": "v" for number in range(100)} | {"k0": "x" * 63}
    assert checked_labels(most) == most
    assert checked_labels({f"{'a' * 253}/{'b' * 63}": ""})
    assert len(parse_selector(",".join("a" * 50))) == 50
    assert len(parse_selector(f"a in ({'b' * 1_993})")) == 1


@pytest.mark.parametrize(
    "selector", [",".join("a" * 51), f"a in ({'b' * 1_994})", "a" * 64, f"{'a' * 254}/b", f"a={'b' * 64}"]
)
def test_selector_beyond_a_bound_is_refused(selector: str) -> None:
    with pytest.raises(InvalidField):
        parse_selector(selector)
