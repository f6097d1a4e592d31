"""What the accounts of claimed GPUs do where something fails."""

import pytest

from voda.domain.errors import ClusterUnavailable, VersionConflict
from voda.operator.sharing.claims.claim_accounts import succeeds


async def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [VersionConflict("others were faster"), ClusterUnavailable("away"), KeyError("n1")])
async def test_work_that_fails_whatever_it_is_is_not_done_and_others_go_on(error: Exception) -> None:
    assert not await succeeds(_fail(error), "n1")
