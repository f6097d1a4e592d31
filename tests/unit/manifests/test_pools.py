"""The pools that a manifest lists."""

from collections.abc import Sequence

import pytest

from tests.service import a_manifest
from voda.domain.errors import InvalidField
from voda.manifests.parse import parse


def listed(pool: str) -> tuple[str, Sequence[str]]:
    manifest = a_manifest("a")
    metadata = {**manifest["metadata"], "annotations": {"voda.dev/pool": pool}}
    parsed = parse({**manifest, "metadata": metadata})
    return parsed.spec.pool, parsed.pools


def test_pools_when_listed_are_those_in_their_order() -> None:
    assert listed("a100") == ("a100", ())
    assert listed("a100, v100,a100") == ("a100", ("a100", "v100"))
    assert listed("any") == ("any", ("any",))


@pytest.mark.parametrize("pool", ["a100,", ",", "a100;v100", "a,b c"])
def test_pools_when_one_is_no_name_are_refused(pool: str) -> None:
    with pytest.raises(InvalidField, match=r"voda.dev/pool"):
        listed(pool)
