"""Quantities are read as Kubernetes reads them."""

import pytest

from voda.cluster.kubernetes.resources.quantity import LARGEST, milli
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
