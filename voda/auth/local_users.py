"""The users of this machine: who asks over the Unix socket, as the kernel says, and as whom the jobs of a user run.

Rule: nothing that a caller sends counts. Of the peer's credentials only the user id is used, and groups are looked up:
a process may have taken on, or given up, groups of its own.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from voda.accounts import Account, Accounts
from voda.auth.callers import Caller, CallerRole
from voda.auth.tokens import ADMIN
from voda.domain.errors import InvalidInput, NotAllowed, TransientError, Unauthorized

ADMIN_GROUP: Final = "voda-admin"
ROOT: Final = "root"


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, when it connected; the fields are those of `struct ucred`."""

    pid: int
    uid: int
    gid: int


async def own_name(accounts: Accounts, uid: int) -> str:
    """Return the name of the account that runs voda; `admin` where it has none, or nobody says so in time."""
    try:
        account = await accounts.account_of_uid(uid)
    except (TransientError, OSError):
        account = None
    return ADMIN if account is None else account.name


class LocalUsers:
    """Tells callers by the user ids of their processes, and accounts by the names of jobs' owners."""

    def __init__(self, accounts: Accounts, *, unmapped_uid: int | None = None) -> None:
        self._accounts = accounts
        self._unmapped_uid = unmapped_uid
        """Stands for several users, see voda.accounts.unmapped_uid."""
        self._admins = {ROOT}

    async def identify(self, peer: Peer) -> Caller:
        """Return the caller behind a process.

        Raises:
            NotAllowed: the user has no account, or one that voda cannot tell from its own admin.
            TransientError: the accounts of this machine cannot be read at this moment.
        """
        if peer.uid == 0:
            # Without a lookup, so that root gets in whatever is wrong with the name service.
            return Caller(user=ROOT, role="admin", found_by="socket")
        is_known = peer.uid != self._unmapped_uid
        account = await self._accounts.account_of_uid(peer.uid) if is_known else None
        if account is None:
            raise NotAllowed(
                f"user id {peer.uid} has no account on this machine, and voda knows callers of its socket by their"
                " accounts: use a token"
            )
        if account.name == ADMIN:
            raise NotAllowed(
                f"the account {ADMIN} has the name of voda's own administrator, so it cannot use the socket: use"
                " another account, or a token"
            )
        role: CallerRole = "admin" if await self._is_admin(account) else "user"
        (self._admins.add if role == "admin" else self._admins.discard)(account.name)
        return Caller(user=account.name, role=role, found_by="socket")

    async def as_now(self, caller: Caller) -> Caller:
        """Return a caller whom the socket let in before, with the role that it would give now.

        Raises:
            Unauthorized: the account is gone.
            TransientError: the accounts of this machine cannot be read at this moment.
        """
        if caller.user == ROOT:
            return caller
        account = await self._accounts.account_of(caller.user)
        if account is None:
            raise Unauthorized(f"user {caller.user[:80]!r} has no account on this machine any more")
        return replace(caller, role="admin" if await self._is_admin(account) else "user")

    def is_admin(self, user: str) -> bool:
        """Return whether a user was an admin when they last asked; without a lookup, which may wait."""
        return user in self._admins

    async def job_account(self, owner: str) -> Account | None:
        """Return the account as which the jobs of an owner run; None = that of the user who runs voda.

        Raises:
            InvalidInput: the owner has none.
            TransientError: the accounts of this machine cannot be read at this moment.
        """
        if owner in (ADMIN, ROOT):
            return None
        account = await self._accounts.account_of(owner)
        if account is None:
            raise InvalidInput(
                f"user {owner[:80]!r} has no account on this machine, and jobs here run as their users: make one of"
                " that name, or submit as another user"
            )
        return account

    async def _is_admin(self, account: Account) -> bool:
        admins = await self._accounts.group_id(ADMIN_GROUP)
        return admins is not None and admins in account.groups
