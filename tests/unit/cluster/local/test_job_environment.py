"""The variables that every process of a job begins with."""

from voda.accounts import Account
from voda.cluster.local.isolation.job_environment import clean_environment, user_variables

ADA = Account(name="ada", uid=1001, gid=1001, groups=(1001,), home="/home/ada")


def test_environment_of_a_job_has_nothing_of_vodas_own_but_what_is_named() -> None:
    own = {
        "PATH": "/bin",
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    secrets = dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "VODA_TOKEN", "VODA_HOME", "VODA_LOG", "PGPASSWORD", "LD_PRELOAD", "INVOCATION_ID"),
        "x",
    )
    assert clean_environment({**own, **secrets}) == {"SHELL": "/bin/sh", **own}


def test_environment_of_a_service_without_a_home_is_completed_by_the_account() -> None:
    assert clean_environment({"USER": "own"}, lambda _: ADA) == {
        **user_variables(ADA),
        "USER": "own",
        "PATH": "/bin:/usr/bin",
    }
    assert clean_environment({}, lambda _: None) == {"SHELL": "/bin/sh", "PATH": "/bin:/usr/bin"}
