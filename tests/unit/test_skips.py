"""No test is skipped in CI for want of a server or a program: what a machine may lack fails there (tests/needs.py)."""

import re
from pathlib import Path

_SKIP = re.compile(r"pytest\.(mark\.)?(skip|skipif|importorskip)\(")
TESTS = Path(__file__).resolve().parents[1]
MAY_SKIP = {
    "needs.py": "says what is missing: skips on a developer's machine, fails in CI",
    "public_data.py": "public data sets, which a fresh clone has not",
    "test_pollux_applications.py": "as public_data.py",
    "test_recordings.py": "recordings of another Kubernetes than the one that is run",
    "test_device_claims.py": "what the older Kubernetes does not serve yet",
    "test_shared_claims.py": "as test_device_claims.py",
    "test_sick_gpus.py": "as test_device_claims.py",
    "test_jobs.py": "as test_device_claims.py",
    "test_jobs_beside_shares.py": "as test_device_claims.py",
    "test_failures_named.py": "as test_hostile_jobs.py",
    "test_hostile_jobs.py": "control groups that the kernel does not delegate",
    "test_limits_of_jobs.py": "as test_hostile_jobs.py",
    "test_local_commands.py": "as test_hostile_jobs.py",
    "test_users_of_jobs.py": "namespaces that the kernel does not allow, and an installation that users cannot reach",
}
"""File -> what it may skip for, whatever runs it."""


def _skips(path: Path) -> bool:
    """Return whether a file skips tests by itself."""
    return _SKIP.search(path.read_text("utf-8")) is not None


def test_tests_when_skipped_in_ci_too_are_listed_with_a_reason() -> None:
    assert sorted(path.name for path in TESTS.rglob("*.py") if _skips(path)) == sorted(MAY_SKIP)
