"""The policies are found by file and chosen by the name users write."""

import pytest

from voda.domain.errors import InvalidInput
from voda.policies import POLICIES, Queueing


def test_policies_when_listed_are_the_nine() -> None:
    nine = "afs-l elastic-fifo elastic-srjf elastic-tiresias elastic-value ffdl fifo srjf tiresias"
    assert list(POLICIES) == nine.split()


def test_policy_when_its_name_is_wrong_is_answered_with_the_closest_and_all() -> None:
    with pytest.raises(
        InvalidInput, match=r"'elastic-fido' is not known. Did you mean 'elastic-fifo'\? Known: afs-l, "
    ):
        POLICIES.choose("elastic-fido")


def test_queueing_policies_when_looked_for_are_the_two_tiresias() -> None:
    assert [name for name, one in POLICIES.items() if isinstance(one, Queueing)] == ["elastic-tiresias", "tiresias"]
