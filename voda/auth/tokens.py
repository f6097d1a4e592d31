"""Tells callers by their tokens, what their role may do, and creates, lists and revokes the tokens of users.

Rule: of a user's token only the hash is stored; a job's token is computed and never stored. The admin's token alone is
written down, in a file that only its owner can read, so that the command line on this machine finds it.
"""

import hmac
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self, get_args

import msgspec
from msgspec import Struct

from voda.auth import secret_files
from voda.auth.callers import Caller
from voda.auth.logins import SESSION_PREFIX, Claim, Logins, begun_without_token, session_caller
from voda.auth.server_secrets import ADMIN_TOKEN, SECRET, MountedSecrets, ServerSecrets
from voda.clock import Clock, SystemClock
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound, Unauthorized

_log = logging.getLogger(__name__)

Role = Literal["admin", "user", "viewer", "scheduler"]
ROLES: Sequence[Role] = get_args(Role)
ADMIN = "admin"
"""The user behind the admin's token, unless the server gives that user another name."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?")
_SECRET_BYTES = 32
_JOB_PREFIX = "vjob_"
_TOKENS = "tokens.json"


class Token(Struct, frozen=True, kw_only=True):
    """What is stored of a token."""

    name: str
    """The user behind it."""
    role: Role
    sha256: str
    """64 hexadecimal digits."""
    created_at: datetime


class Authenticator:
    """Tells callers by tokens: of a data folder (`open`), of one that replicas share (`mounted`), or none (`none`)."""

    def __init__(
        self,
        folder: Path | None,
        clock: Clock,
        secrets_: ServerSecrets,
        *,
        admin: str = ADMIN,
        is_mounted: bool = False,
    ) -> None:
        self._folder = folder
        self._admin_name = admin
        self._clock = clock
        self._secrets = secrets_
        self._logins = Logins()
        self._stamp = secret_files.ABSENT
        self._callers: Mapping[str, Caller] = {}
        self._is_mounted = is_mounted

    @classmethod
    def open(cls, folder: Path, clock: Clock, *, admin: str = ADMIN) -> Self:
        """Return the authenticator of a data folder, which exists; the first call makes its secrets.

        `admin` is the name of the user behind the admin's token.

        Raises:
            InvalidInput: a file cannot be read or decoded.
            StoreNotWritable: the folder cannot be written.
        """
        # Not from a Clock or a seed: tokens must not be repeatable.
        seal = secret_files.write_once(folder / SECRET, secrets.token_hex(_SECRET_BYTES))
        admin_token = secret_files.write_once(folder / ADMIN_TOKEN, _new_token())
        access = cls(folder, clock, ServerSecrets(seal, admin_token), admin=admin)
        access._load()
        return access

    @classmethod
    def mounted(cls, folder: Path, clock: Clock) -> Self:
        """Return the authenticator that several replicas share, by a folder that none of them writes.

        Its files (`secret`, `admin.token` and, optionally, `tokens.json`, as `open` makes them elsewhere) may change at
        any time, as those of a Kubernetes Secret do.

        Raises:
            InvalidInput: a file is missing, too short to be secret, or cannot be decoded.
        """
        access = cls(folder, clock, MountedSecrets(folder), is_mounted=True)
        access._load()
        return access

    @classmethod
    def none(cls, *, admin: str = ADMIN) -> Self:
        """Return the authenticator of a service without tokens: every caller is an admin of that name."""
        return cls(None, SystemClock(), ServerSecrets(secrets.token_hex(_SECRET_BYTES)), admin=admin)

    @property
    def has_tokens(self) -> bool:
        return self._folder is not None

    def identify(self, token: str | None) -> Caller:
        """Return the caller behind a token as sent; raises Unauthorized where there is none, or it is unknown."""
        if self._folder is None:
            return Caller(user=self._admin_name, role="admin", found_by="no tokens")
        if token and token.startswith(_JOB_PREFIX):
            return self._job(token)
        if token and token.startswith(SESSION_PREFIX):
            return session_caller(token, self._secrets.seal, self._clock.now(), self._token_of)
        if not token:
            raise Unauthorized("this needs a token: send the header `Authorization: Bearer TOKEN`")
        # Hashes are compared, so the time that it takes tells nothing about the token.
        digest = sha256(token.encode("utf-8", "replace"))
        if hmac.compare_digest(digest.digest(), self._secrets.admin):
            return Caller(user=self._admin_name, role="admin")
        if (caller := self._tokens().get(digest.hexdigest())) is None:
            raise Unauthorized("this token is unknown or was revoked: ask for a new one (voda token create NAME)")
        return caller

    def is_of_socket(self, token: str | None) -> bool:
        """Return whether it is of a session that was begun without a token, which only the Unix socket does."""
        return token is not None and begun_without_token(token, self._secrets.seal)

    def login(self, caller: Caller) -> tuple[str, float]:
        """Return a code that begins a session of the caller once, and when it ends; raises NotAllowed for a session."""
        token = self._token_of(caller) if caller.found_by == "token" else ""
        if caller.found_by == "token" and not token:
            raise Unauthorized("this token was revoked a moment ago: ask for a new one (voda token create NAME)")
        return self._logins.code(caller, self._secrets.seal, self._clock.now(), token=token)

    def begin_session(self, code: str) -> tuple[str, Claim]:
        """Return a session's token, and what it says; raises Unauthorized where the code is over or was used."""
        if not self.has_tokens:
            raise Unauthorized("this server runs without tokens: its page needs no login")
        return self._logins.begin(code, self._secrets.seal, self._clock.now())

    def is_admin(self, user: str) -> bool:
        """Return whether the user's token, if any, is an admin's."""
        if user == self._admin_name or not self.has_tokens:
            return user == self._admin_name
        return any(caller.user == user and caller.role == "admin" for caller in self._tokens().values())

    def job_token(self, job_id: str) -> str:
        """Return the token with which a job's processes report; the same on every call and replica."""
        return f"{_JOB_PREFIX}{job_id}.{_seal(self._secrets.seal, job_id)}"

    def add(self, name: str, role: Role) -> str:
        """Make a token for a user, store its hash, and return it: it cannot be shown again.

        Raises:
            AlreadyExists: the user has one.
            InvalidInput: the role is unknown, or the name is not one for a user.
            StoreNotWritable: the folder cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"user {name[:80]!r}: a user's name has 1 to 63 of a-z, 0-9, '.', '_', '-' and '@', and begins and"
                " ends with a letter or digit"
            )
        if role not in ROLES:
            raise InvalidInput(f"role {role!r} is unknown, expected one of {', '.join(ROLES)}")
        file = self._writable_file()
        token = _new_token()
        with secret_files.locked(file):
            tokens = _read_tokens(file)
            if name == ADMIN or any(other.name == name for other in tokens):
                raise AlreadyExists(f"user {name} has a token; revoke it first (voda token revoke {name})")
            made = Token(
                name=name,
                role=role,
                sha256=sha256(token.encode()).hexdigest(),
                created_at=datetime.fromtimestamp(self._clock.now(), UTC),
            )
            _write_tokens(file, [*tokens, made])
        return token

    def remove(self, name: str) -> None:
        """Revoke a user's token at once and for good; raises NotFound where the user has none."""
        file = self._writable_file()
        if name == ADMIN:
            raise InvalidInput(
                f"the admin's token cannot be revoked; to have a new one, remove {file.with_name(ADMIN_TOKEN)} and"
                " start voda again"
            )
        with secret_files.locked(file):
            tokens = _read_tokens(file)
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                known = ", ".join(token.name for token in tokens) or "nobody"
                raise NotFound(f"user {name[:80]!r} has no token; there are tokens of {known}")
            _write_tokens(file, left)

    def list(self) -> Sequence[Token]:
        """Return what is stored of the tokens, oldest first; the admin's is not among them."""
        return _read_tokens(self._file())

    def _job(self, token: str) -> Caller:
        job_id, _, seal = token.removeprefix(_JOB_PREFIX).rpartition(".")
        if not hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(self._secrets.seal, job_id).encode()):
            raise Unauthorized("this job token is unknown: another voda started the job")
        return Caller(user="", role="job", job_id=job_id)

    def _token_of(self, caller: Caller) -> str:
        """Return what tells a user's token of that role from one made later; empty: there is none."""
        shown = (caller.user, caller.role)
        hashes = sorted(digest for digest, one in self._tokens().items() if (one.user, one.role) == shown)
        if shown == (self._admin_name, "admin"):
            hashes.append(self._secrets.admin.hex())
        return sha256("".join(hashes).encode()).hexdigest()[:16] if hashes else ""

    def _file(self) -> Path:
        if self._folder is None:
            raise InvalidInput("this service runs without tokens")
        return self._folder / _TOKENS

    def _writable_file(self) -> Path:
        if self._is_mounted:
            raise InvalidInput(
                f"{self._folder} is mounted: change the tokens where they were made, and mount them again"
            )
        return self._file()

    def _tokens(self) -> Mapping[str, Caller]:
        """Return token hash -> caller as the file says now: another process may have revoked a token."""
        if secret_files.stamp_of(self._file()) != self._stamp:
            try:
                self._load()
            except InvalidInput as error:
                # Nobody knows which tokens are revoked, so only the admin gets in.
                _log.error("tokens not read reason=%s", error)
                self._callers = {}
        return self._callers

    def _load(self) -> None:
        file = self._file()
        # Before reading, so that a write meanwhile is noticed next time.
        self._stamp = secret_files.stamp_of(file)
        self._callers = {token.sha256: Caller(user=token.name, role=token.role) for token in _read_tokens(file)}


def _seal(secret: bytes, job_id: str) -> str:
    return hmac.new(secret, job_id.encode("utf-8", "replace"), sha256).hexdigest()


def _new_token() -> str:
    return f"voda_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _read_tokens(file: Path) -> Sequence[Token]:
    content = secret_files.read_secret(file)
    try:
        return msgspec.json.decode(content, type=list[Token]) if content else []
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{file} does not hold tokens ({error}); restore it, or remove it and create the tokens again"
        ) from error


def _write_tokens(file: Path, tokens: Sequence[Token]) -> None:
    secret_files.replace_content(file, msgspec.json.format(msgspec.json.encode(tokens), indent=2) + b"\n")


def has_secret(folder: Path) -> bool:
    """Return whether tokens were ever made in a folder."""
    return (folder / SECRET).exists()
