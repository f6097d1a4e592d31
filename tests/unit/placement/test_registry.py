"""Placers are found by file and chosen by name."""

import pytest

from voda.domain.errors import InvalidInput
from voda.placement.registry import placer, placers


def test_placers_when_listed_then_each_is_found_under_its_name() -> None:
    assert {"packed", "steady"} <= set(placers())
    assert all(placer(name).name == name for name in placers())


def test_placer_when_the_name_is_nearly_right_then_the_closest_and_all_names_are_told() -> None:
    with pytest.raises(InvalidInput, match=r"placer 'Steedy' .* Did you mean 'steady'.* packed, steady"):
        placer("Steedy")
