"""Placers are found by file and chosen by name."""

import pytest

from voda.domain.errors import InvalidInput
from voda.placement import PLACERS


def test_placers_when_listed_then_each_is_found_under_its_name() -> None:
    assert {"packed", "steady"} <= set(PLACERS)
    assert all(PLACERS.choose(name).name == name for name in PLACERS)


def test_placer_when_the_name_is_nearly_right_then_the_closest_and_all_names_are_told() -> None:
    with pytest.raises(InvalidInput, match=r"placer 'Steedy' .* Did you mean 'steady'.* packed, steady"):
        PLACERS.choose("Steedy")
