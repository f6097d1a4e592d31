"""The accounts of this machine's users, as its name service (files, LDAP, ...) knows them.

Rule: a lookup may wait for another machine, so on the event loop only `Accounts` is asked: it looks up in threads that
nobody waits for at the end, for a bounded time, and remembers answers for some seconds.
"""

import asyncio
import ctypes
import grp
import pwd
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from voda.domain.errors import TransientError

T = TypeVar("T")

ANSWER_S: Final = 5.0
"""Longest wait for one lookup."""
_KEPT_S: Final = 30.0
_ABSENT_KEPT_S: Final = 3.0
"""How long an answer counts: a new account, and one of a name service that was away, shall work soon."""
_AT_ONCE: Final = 32
"""Lookups under way; each that hangs keeps a thread."""
_REMEMBERED: Final = 4_096
_FIRST_GROUPS: Final = 64
_ALL_MAPPED: Final = ["0", "0", "4294967295"]


class Account(Struct, frozen=True, kw_only=True):
    """What processes of a user run with."""

    name: str
    uid: int
    gid: int
    """Of the primary group."""
    groups: tuple[int, ...]
    """Ids of all groups, the primary one among them."""
    home: str


def account_of(name: str) -> Account | None:
    """Return the account of that name, None where there is none; this may block for long, see `Accounts`."""
    try:
        return _account(pwd.getpwnam(name))
    except (KeyError, ValueError):
        return None


def account_of_uid(uid: int) -> Account | None:
    """Return the account of that user id, None where there is none; this may block for long, see `Accounts`."""
    try:
        return _account(pwd.getpwuid(uid))
    except (KeyError, OverflowError):
        return None


def group_id(name: str) -> int | None:
    """Return the id of the group of that name, None where there is none; this may block for long, see `Accounts`."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None


def unmapped_uid(uid_map: Path = Path("/proc/self/uid_map")) -> int | None:
    """Return the user id that stands for all users without one in this container; None where each has its own."""
    try:
        maps = uid_map.read_text("ascii").split()
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return None if maps == _ALL_MAPPED else overflow


class NameService(Protocol):
    """Looks up; every call may block."""

    def account_of(self, name: str) -> Account | None: ...
    def account_of_uid(self, uid: int) -> Account | None: ...
    def group_id(self, name: str) -> int | None: ...


class _ThisMachine:
    account_of = staticmethod(account_of)
    account_of_uid = staticmethod(account_of_uid)
    group_id = staticmethod(group_id)


class Accounts:
    """Looks up off the event loop; an answer is up to 30 s old, "there is none" up to 3 s.

    Every method raises TransientError where the name service does not answer in time.
    """

    def __init__(self, names: NameService | None = None, *, answer_s: float = ANSWER_S) -> None:
        self._names: NameService = names or _ThisMachine()
        self._answer_s = answer_s
        self._known: dict[tuple[str, str | int], tuple[float, Any]] = {}
        """Question -> when its answer is too old, and the answer."""
        self._asked: dict[tuple[str, str | int], asyncio.Future[Any]] = {}

    async def account_of(self, name: str) -> Account | None:
        return await self._ask("account", name, lambda: self._names.account_of(name))

    async def account_of_uid(self, uid: int) -> Account | None:
        return await self._ask("user id", uid, lambda: self._names.account_of_uid(uid))

    async def group_id(self, name: str) -> int | None:
        return await self._ask("group", name, lambda: self._names.group_id(name))

    async def _ask(self, kind: str, key: str | int, find: Callable[[], T | None]) -> T | None:
        question, now = (kind, key), asyncio.get_running_loop().time()
        if (known := self._known.get(question)) is not None and now < known[0]:
            found: T | None = known[1]
            return found
        if (asked := self._asked.get(question)) is None:
            if len(self._asked) >= _AT_ONCE:
                raise TransientError(f"{kind} {key}: too many lookups of accounts are under way on this machine")
            asked = self._asked[question] = _in_thread(find)
            asked.add_done_callback(lambda done: self._keep(question, done))
        await asyncio.wait((asked,), timeout=self._answer_s)
        if not asked.done():
            raise TransientError(
                f"{kind} {key}: the accounts of this machine (files, LDAP, ...) did not answer within"
                f" {self._answer_s:g} s; try again"
            )
        answer: T | None = asked.result()
        return answer

    def _keep(self, question: tuple[str, str | int], done: "asyncio.Future[Any]") -> None:
        del self._asked[question]
        if done.cancelled() or done.exception() is not None:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        answer = done.result()
        kept_s = _ABSENT_KEPT_S if answer is None else _KEPT_S
        self._known[question] = (done.get_loop().time() + kept_s, answer)


def _in_thread(find: Callable[[], T]) -> "asyncio.Future[T]":
    """Return the future of a lookup in a thread that the process does not wait for at its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(answer: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(answer)  # type: ignore[arg-type]  # T may be optional itself
        else:
            future.set_exception(TransientError(f"the accounts of this machine cannot be read: {error}"))

    def run() -> None:
        answer, error = None, None
        try:
            answer = find()
        except Exception as raised:  # what a module of the name service raises, its caller hears as a VodaError
            error = raised
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, answer, error)

    threading.Thread(target=run, name="accounts", daemon=True).start()
    return future


def _account(entry: pwd.struct_passwd) -> Account:
    name, gid = entry.pw_name, entry.pw_gid
    groups = (gid, *sorted(set(_groups(name, gid)) - {gid}))
    return Account(name=name, uid=entry.pw_uid, gid=gid, groups=groups, home=entry.pw_dir)


def _groups(name: str, gid: int) -> list[int]:
    # Not os.getgrouplist, which holds Python's global lock while the name service answers: everything would wait.
    most = _FIRST_GROUPS
    while True:
        count, found = ctypes.c_int(most), (ctypes.c_uint * most)()
        if _LIBC.getgrouplist(name.encode("utf-8", "surrogateescape"), gid, found, ctypes.byref(count)) >= 0:
            return list(found[: count.value])
        most = max(2 * most, count.value)


_LIBC: Final = ctypes.CDLL(None)
_LIBC.getgrouplist.argtypes = (ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
