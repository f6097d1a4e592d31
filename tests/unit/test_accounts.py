"""Claims about the accounts of this machine."""

import asyncio
import grp
import os
import pwd
import threading
from pathlib import Path

import pytest

from voda.accounts import Account, Accounts, account_of, account_of_uid, group_id, unmapped_uid
from voda.domain.errors import TransientError

ADA = Account(name="ada", uid=70_001, gid=70_001, groups=(70_001,), home="/home/ada")


class SlowNames:
    """A name service that answers once `answers` is set, and counts how often it is asked."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0
        self.known: Account | None = ADA

    def account_of(self, name: str) -> Account | None:
        return self.account_of_uid(int(name == "ada"))

    def account_of_uid(self, uid: int) -> Account | None:
        self.asked += 1
        if uid != 0:
            self.answers.wait(30)
        return self.known

    def group_id(self, name: str) -> int | None:
        raise OSError(f"{name}: no route to host")


def test_account_when_it_is_root_has_what_the_machine_says() -> None:
    root = account_of("root")
    assert root is not None
    assert (root.uid, root.gid, root.home) == (0, 0, pwd.getpwuid(0).pw_dir)
    assert root == account_of_uid(0)


@pytest.mark.parametrize("entry", pwd.getpwall(), ids=lambda entry: str(entry.pw_name))
def test_groups_of_an_account_are_those_of_the_system(entry: pwd.struct_passwd) -> None:
    found = account_of(entry.pw_name)
    assert found is not None
    assert set(found.groups) == set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    assert found.groups[0] == entry.pw_gid


@pytest.mark.parametrize("name", ["", "no-such-user", "a\0b", "x" * 10_000, "ü", "\udc80"])
def test_account_when_nobody_has_the_name_is_none(name: str) -> None:
    assert account_of(name) is None
    assert group_id(name) is None


@pytest.mark.parametrize("uid", [4_000_000_001, 2**32 - 1, 2**40, -2])
def test_account_when_nobody_has_the_id_is_none(uid: int) -> None:
    assert account_of_uid(uid) is None


def test_group_when_it_is_there_has_its_id() -> None:
    assert group_id(grp.getgrgid(0).gr_name) == 0


async def test_lookup_when_the_name_service_hangs_ends_in_time_and_holds_nobody_up() -> None:
    names = SlowNames()
    accounts = Accounts(names, answer_s=0.05)
    with pytest.raises(TransientError, match=r"user id 1: .* did not answer within 0\.05 s; try again"):
        await accounts.account_of_uid(1)
    with pytest.raises(TransientError):
        await accounts.account_of_uid(1)
    assert names.asked == 1, "the lookup that hangs is not asked again"
    assert await accounts.account_of_uid(0) == ADA
    names.answers.set()
    patient = Accounts(names, answer_s=30)
    assert await patient.account_of("ada") == ADA


async def test_lookups_when_many_hang_are_refused_instead_of_taking_threads_without_end() -> None:
    names = SlowNames()
    accounts = Accounts(names, answer_s=0.01)
    before = threading.active_count()
    failures = await asyncio.gather(*map(accounts.account_of_uid, range(1, 101)), return_exceptions=True)
    assert all(isinstance(failure, TransientError) for failure in failures)
    assert threading.active_count() - before <= 32
    names.answers.set()


async def test_lookup_when_repeated_is_answered_from_memory_also_where_there_is_none() -> None:
    names = SlowNames()
    accounts = Accounts(names)
    assert [await accounts.account_of_uid(0) for _ in range(3)] == [ADA] * 3
    assert names.asked == 1
    names.known = None
    nobody = Accounts(names)
    assert [await nobody.account_of_uid(0) for _ in range(3)] == [None] * 3
    assert names.asked == 2


async def test_lookup_when_the_name_service_fails_says_so_and_may_be_tried_again() -> None:
    accounts = Accounts(SlowNames())
    with pytest.raises(TransientError, match="the accounts of this machine cannot be read: ops: no route to host"):
        await accounts.group_id("ops")


async def test_accounts_of_this_machine_are_found_off_the_loop() -> None:
    accounts = Accounts()
    assert await accounts.account_of("root") == await accounts.account_of_uid(0) == account_of("root")
    assert await accounts.group_id("no-such-group") is None


def test_user_ids_when_not_all_are_mapped_have_one_that_stands_for_the_others(tmp_path: Path) -> None:
    (tmp_path / "all").write_text("         0          0 4294967295\n")
    (tmp_path / "some").write_text("         0       1000          1\n         1     100000      65536\n")
    assert unmapped_uid(tmp_path / "all") is None
    assert unmapped_uid(tmp_path / "some") == 65_534
