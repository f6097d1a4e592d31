"""Which replica a short name means."""

import pytest

from voda.api.routes.job_reports import named_replica

_OF_AN_MPIJOB = ("twin-1-launcher-x7f2k", "twin-1-worker-0", "twin-1-worker-1", "twin-1-worker-10")
_OF_A_JOB = ("twin-1-0-p54fz", "twin-1-1-abcde", "twin-1-10-q2w3e")


@pytest.mark.parametrize(
    ("known", "replica", "meant"),
    [
        (_OF_AN_MPIJOB, "", "twin-1-launcher-x7f2k"),
        (_OF_AN_MPIJOB, "launcher", "twin-1-launcher-x7f2k"),
        (_OF_AN_MPIJOB, "1", "twin-1-worker-1"),
        (_OF_AN_MPIJOB, "worker-10", "twin-1-worker-10"),
        (_OF_AN_MPIJOB, "2", None),
        (_OF_A_JOB, "1", "twin-1-1-abcde"),
        (_OF_A_JOB, "worker-10", "twin-1-10-q2w3e"),
        (_OF_A_JOB, "2", None),
        (_OF_A_JOB, ".", None),
    ],
)
def test_replica_is_named_by_its_role_or_index(known: tuple[str, ...], replica: str, meant: str | None) -> None:
    assert named_replica(known, replica) == meant
