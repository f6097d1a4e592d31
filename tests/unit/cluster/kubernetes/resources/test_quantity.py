"""Quantities are read as Kubernetes reads them."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.cluster.kubernetes.resources.quantity import LARGEST, format_amount, milli, whole
from voda.domain.errors import InvalidInput

BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
DECIMAL = {suffix: 1000**power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("7910m", 7910),
        ("2", 2000),
        (2, 2000),
        (0.5, 500),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("+3", 3000),
        ("-1", -1000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1E", 10**21),
        ("25e-1", 2500),
        (1e3, 1_000_000),
        (1e-9, 1),
        ("16Gi", 16 * 1024**3 * 1000),
        ("1.5Gi", 3 * 1024**3 * 500),
        ("128974848", 128974848000),
        ("129e6", 129 * 10**9),
        ("0", 0),
        ("-0", 0),
    ],
)
def test_milli_of_what_people_write_is_exact(quantity: str | int | float, expected: int) -> None:
    assert milli(quantity) == expected


@pytest.mark.parametrize(("quantity", "expected"), [("1n", 1), ("1u", 1), ("0.1m", 1), ("1001u", 2), ("-1u", -1)])
def test_milli_of_less_than_a_thousandth_is_rounded_away_from_zero(quantity: str, expected: int) -> None:
    assert milli(quantity) == expected


@pytest.mark.parametrize("quantity", ["1e99999999", "9" * 60, "8Ei", "9223372036854775808", "1e+400"])
def test_milli_beyond_the_largest_is_the_largest(quantity: str) -> None:
    assert milli(quantity) == LARGEST


def test_milli_of_an_endless_fraction_is_a_thousandth_and_of_nothing_nothing() -> None:
    assert milli("1e-99999999") == 1
    assert milli("0e99999999") == 0


@pytest.mark.parametrize(
    "quantity",
    ["", " ", "1 ", "m", ".", "1.2.3", "1e", "0x10", "1_000", "1KI", "1K", "1ki", "1mm", "--1", "٣", "inf", "1\n"],
)
def test_milli_of_no_quantity_is_refused_with_what_was_expected(quantity: str) -> None:
    with pytest.raises(InvalidInput, match="expected a Kubernetes quantity such as 500m, 2 or 16Gi, got"):
        milli(quantity)


@pytest.mark.parametrize("quantity", [float("nan"), float("inf"), True, "1" * 100_000])
def test_milli_of_hostile_numbers_is_refused_in_a_short_sentence(quantity: str | float) -> None:
    with pytest.raises(InvalidInput) as refused:
        milli(quantity)
    assert len(str(refused.value)) < 200


def test_whole_of_a_part_of_a_unit_leaves_it_out() -> None:
    assert [whole(quantity) for quantity in ("7910m", "8", "999m", "-3")] == [7, 8, 0, 0]


@given(st.integers(0, 10**9), st.sampled_from([*BINARY.items(), *DECIMAL.items()]))
def test_milli_of_a_suffixed_number_is_its_product(number: int, suffix: tuple[str, int]) -> None:
    assert milli(f"{number}{suffix[0]}") == min(number * suffix[1] * 1000, LARGEST)


@given(st.integers(0, LARGEST))
def test_milli_of_written_thousandths_gives_them_back(amount: int) -> None:
    assert milli(f"{amount}m") == amount


@given(st.decimals(0, 10**12, allow_nan=False, places=6))
def test_milli_of_a_decimal_is_the_next_thousandth(number: object) -> None:
    exact = Fraction(str(number)) * 1000
    assert 0 <= milli(f"{number:f}") - exact < 1


@given(st.text(max_size=80))
def test_milli_of_any_text_is_a_number_within_bounds_or_a_refusal(text: str) -> None:
    with suppress(InvalidInput):
        assert abs(milli(text)) <= LARGEST


def test_shown_amounts_have_the_units_people_use() -> None:
    said = [
        format_amount(3500, "cpu"),
        format_amount(1000, "cpu"),
        format_amount(milli("16Gi"), "memory"),
        format_amount(2000, "nvidia.com/gpu"),
        format_amount(1000, "pods"),
    ]
    assert said == ["3.5 CPUs", "1 CPU", "16 GiB of memory", "2 nvidia.com/gpu", "1 pod"]
