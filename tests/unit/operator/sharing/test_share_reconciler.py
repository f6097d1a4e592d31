"""What the reconciler of shares does where something fails."""

import pytest

from voda.domain.errors import ClusterUnavailable, VersionConflict
from voda.operator.sharing.share_reconciler import succeeds, version_of
from voda.projections.cluster.shares import ShareAccounts


async def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [VersionConflict("others were faster"), ClusterUnavailable("away"), KeyError("n1")])
async def test_work_that_fails_whatever_it_is_is_not_done_and_others_go_on(error: Exception) -> None:
    assert not await succeeds(_fail(error), "n1")


def test_version_of_an_account_that_was_forgotten_is_a_conflict_by_which_one_decides_again() -> None:
    with pytest.raises(VersionConflict, match=r"^node n1 is gone"):
        version_of(ShareAccounts(), "n1")
