"""Claims about users of this machine, told by their accounts."""

import pytest

from voda.accounts import Account, Accounts
from voda.auth.callers import Caller
from voda.auth.local_users import LocalUsers, Peer, own_name
from voda.domain.errors import InvalidInput, NotAllowed, TransientError

ADMINS = 900
ACCOUNTS = {
    1001: Account(name="ada", uid=1001, gid=1001, groups=(1001, 44), home="/home/ada"),
    1002: Account(name="eve", uid=1002, gid=1002, groups=(1002, 44, ADMINS), home="/home/eve"),
    1003: Account(name="kay", uid=1003, gid=ADMINS, groups=(ADMINS,), home="/home/kay"),
    1004: Account(name="admin", uid=1004, gid=1004, groups=(1004, ADMINS), home="/home/admin"),
}


class Names:
    """A name service of four accounts; `admins` is the id of the group of admins, None = there is no such group."""

    def __init__(self, admins: int | None = ADMINS) -> None:
        self.admins = admins

    def account_of(self, name: str) -> Account | None:
        return next((account for account in ACCOUNTS.values() if account.name == name), None)

    def account_of_uid(self, uid: int) -> Account | None:
        return ACCOUNTS.get(uid)

    def group_id(self, name: str) -> int | None:
        return self.admins if name == "voda-admin" else None


class Broken(Names):
    """A name service that fails."""

    def account_of_uid(self, uid: int) -> Account | None:
        raise OSError("no route to host")


@pytest.mark.parametrize(
    ("uid", "user", "role"),
    [(0, "root", "admin"), (1001, "ada", "user"), (1002, "eve", "admin"), (1003, "kay", "admin")],
)
async def test_caller_when_told_by_the_account_has_its_name_and_the_role_of_its_groups(
    uid: int, user: str, role: str
) -> None:
    caller = await LocalUsers(Accounts(Names())).identify(Peer(pid=1, uid=uid, gid=0))
    assert (caller.user, caller.role, caller.found_by) == (user, role, "socket")


async def test_admin_is_known_by_name_while_the_role_is_had() -> None:
    users = LocalUsers(Accounts(Names()))
    assert [users.is_admin(name) for name in ("root", "ada", "eve")] == [True, False, False]
    for uid in (1001, 1002):
        await users.identify(Peer(pid=1, uid=uid, gid=0))
    assert [users.is_admin(name) for name in ("root", "ada", "eve")] == [True, False, True]


async def test_group_that_a_process_has_taken_on_does_not_count() -> None:
    caller = await LocalUsers(Accounts(Names())).identify(Peer(pid=1, uid=1001, gid=ADMINS))
    assert caller.role == "user"


async def test_users_when_there_is_no_group_of_admins_are_no_admins_but_root() -> None:
    users = LocalUsers(Accounts(Names(admins=None)))
    assert (await users.identify(Peer(pid=1, uid=1002, gid=0))).role == "user"
    assert (await users.identify(Peer(pid=1, uid=0, gid=0))).role == "admin"


async def test_user_without_an_account_is_refused_in_a_sentence() -> None:
    with pytest.raises(NotAllowed, match="user id 4321 has no account on this machine"):
        await LocalUsers(Accounts(Names())).identify(Peer(pid=1, uid=4321, gid=0))


async def test_user_without_a_mapping_in_a_container_is_refused_since_the_kernel_shows_all_of_those_as_one() -> None:
    users = LocalUsers(Accounts(Names()), unmapped_uid=1001)
    with pytest.raises(NotAllowed, match="user id 1001 has no account"):
        await users.identify(Peer(pid=1, uid=1001, gid=0))
    assert (await users.identify(Peer(pid=1, uid=1002, gid=0))).user == "eve"


async def test_account_with_the_name_of_the_admin_of_voda_is_refused_so_that_its_jobs_do_not_run_as_root() -> None:
    with pytest.raises(NotAllowed, match="the account admin has the name of voda's own administrator"):
        await LocalUsers(Accounts(Names())).identify(Peer(pid=1, uid=1004, gid=0))


async def test_root_gets_in_and_others_hear_why_not_when_the_name_service_fails() -> None:
    users = LocalUsers(Accounts(Broken()))
    expected = Caller(user="root", role="admin", found_by="socket")
    assert await users.identify(Peer(pid=1, uid=0, gid=0)) == expected
    with pytest.raises(TransientError, match="the accounts of this machine cannot be read: no route to host"):
        await users.identify(Peer(pid=1, uid=1001, gid=0))


async def test_jobs_run_with_the_account_of_their_owner_and_those_of_the_admin_as_who_runs_voda() -> None:
    users = LocalUsers(Accounts(Names()))
    assert await users.job_account("ada") == ACCOUNTS[1001]
    assert await users.job_account("admin") is None
    assert await users.job_account("root") is None
    with pytest.raises(InvalidInput, match="user 'nobody-here' has no account on this machine"):
        await users.job_account("nobody-here")
    with pytest.raises(InvalidInput, match="user '' has no account"):
        await users.job_account("")


async def test_own_name_is_that_of_the_account_and_admin_where_nobody_knows_it() -> None:
    assert await own_name(Accounts(Names()), 1001) == "ada"
    assert await own_name(Accounts(Names()), 4321) == "admin"
    assert await own_name(Accounts(Broken()), 1001) == "admin"
