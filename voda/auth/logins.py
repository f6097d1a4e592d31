"""Logins to the page: a code that is good once and for a minute, and the session that it begins.

Rules: both say whom they are for and are sealed, so that every replica knows them without keeping them; the replica
that took a code takes it no second time. A session gives no new code, so it ends when it says.
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal

import msgspec
from msgspec import Struct

from voda.auth.callers import Caller, CallerRole
from voda.domain.errors import NotAllowed, Unauthorized

SESSION_PREFIX: Final = "vses_"
_CODE_PREFIX: Final = "vlogin_"
_CODE_S: Final = 60.0
_SESSION_S: Final = 12 * 3600.0
_MOST_SPENT: Final = 10_000
"""Codes that are remembered: of each caller more than one a second would be needed to push one out in its minute."""

Purpose = Literal["login", "session"]


class Claim(Struct, frozen=True, array_like=True):
    """What a code or a session says."""

    user: str
    role: CallerRole
    ends_at: float
    """Seconds since the epoch."""
    nonce: str
    token: str
    """What tells the token that it was begun with, and ends with, from later ones of its user; empty: there was none.
    """


class Logins:
    """The codes that one replica took."""

    def __init__(self) -> None:
        self._spent: dict[str, None] = {}

    def code(self, caller: Caller, secret: bytes, now: float, *, token: str = "") -> tuple[str, float]:
        """Return a code for a caller, and when it ends; raises NotAllowed for a session.

        `token` is what tells the caller's token from others; empty: the caller showed none.
        """
        if caller.found_by == "session":
            raise NotAllowed("a session gives no login: ask with your token, or at the socket (`voda dashboard`)")
        claim = Claim(
            user=caller.user,
            role=caller.role,
            ends_at=now + _CODE_S,
            nonce=secrets.token_hex(8),
            token=token,
        )
        return _CODE_PREFIX + _sealed(claim, "login", secret), claim.ends_at

    def begin(self, code: str, secret: bytes, now: float) -> tuple[str, Claim]:
        """Return the session that a code begins, and what it says; raises Unauthorized where the code is not good."""
        claim = _opened(code.removeprefix(_CODE_PREFIX), "login", secret)
        if claim is None or claim.ends_at < now or claim.nonce in self._spent:
            raise Unauthorized("this login is over, or was used before: `voda dashboard` gives a new one")
        self._spent[claim.nonce] = None
        if len(self._spent) > _MOST_SPENT:
            del self._spent[next(iter(self._spent))]
        session = msgspec.structs.replace(claim, ends_at=now + _SESSION_S, nonce=secrets.token_hex(8))
        return SESSION_PREFIX + _sealed(session, "session", secret), session


def session_caller(token: str, secret: bytes, now: float, token_of: Callable[[Caller], str]) -> Caller:
    """Return whose session it is; raises Unauthorized where it is none, or over.

    `token_of` returns what tells a caller's present token from others, empty: there is none.
    """
    claim = _opened(token.removeprefix(SESSION_PREFIX), "session", secret)
    if claim is None or claim.ends_at < now:
        raise Unauthorized("this session is over: log in again (`voda dashboard`)")
    caller = Caller(user=claim.user, role=claim.role, found_by="session")
    if claim.token and claim.token != token_of(caller):
        raise Unauthorized("the token of this session was revoked: log in with a new one")
    return caller


def begun_without_token(token: str, secret: bytes) -> bool:
    """Return whether it is of a session whose caller showed no token when it began."""
    claim = _opened(token.removeprefix(SESSION_PREFIX), "session", secret)
    return claim is not None and not claim.token


def _sealed(claim: Claim, purpose: Purpose, secret: bytes) -> str:
    content = urlsafe_b64encode(msgspec.json.encode(claim)).decode().rstrip("=")
    return f"{content}.{_seal(content, purpose, secret)}"


def _opened(text: str, purpose: Purpose, secret: bytes) -> Claim | None:
    content, _, seal = text.rpartition(".")
    if not hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(content, purpose, secret).encode()):
        return None
    return msgspec.json.decode(urlsafe_b64decode(content + "=" * (-len(content) % 4)), type=Claim)


def _seal(content: str, purpose: Purpose, secret: bytes) -> str:
    # No job has an id with a colon, so no job's token is a seal of this.
    return hmac.new(secret, f"{purpose}:{content}".encode("utf-8", "replace"), sha256).hexdigest()
