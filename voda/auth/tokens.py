"""Who may do what: tokens, what they are hashed to, and the roles behind them.

Rule: of a token of a person only its hash is kept; a job's token is computed and kept nowhere. The one token that
is written down is the admin's, in a file of its owner alone, so that the command line on this machine finds it.
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
from voda.clock import Clock
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound, Unauthorized

_log = logging.getLogger(__name__)

Role = Literal["admin", "user", "viewer"]
ROLES: Sequence[Role] = get_args(Role)
ADMIN = "admin"
"""Whom the admin's token on this machine stands for."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?")
_SECRET_BYTES = 32
_JOB_PREFIX = "vjob_"
_TOKENS, _ADMIN_TOKEN, _SECRET = "tokens.json", "admin.token", "secret"
_MOUNTED = (_SECRET, _ADMIN_TOKEN)
_SHORTEST = 32
"""Characters of a secret that somebody else made: who guesses it is admin, or reports for any job."""


class Token(Struct, frozen=True, kw_only=True):
    """What is kept of a token."""

    name: str
    """The user it stands for."""
    role: Role
    sha256: str
    """64 hexadecimal digits."""
    created_at: datetime


class Authenticator:
    """Tells callers by their tokens; `open` for those of a folder, `mounted` for several replicas', `none` for none."""

    def __init__(self, folder: Path | None, clock: Clock | None, secret: str) -> None:
        self._folder = folder
        self._clock = clock
        self._secret = secret.encode()
        self._admin = sha256().digest()
        self._stamp = secret_files.ABSENT
        self._known: Mapping[str, Caller] = {}
        self._is_mounted = False
        self._mounted_stamps: tuple[secret_files.Stamp, ...] = ()

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> Self:
        """Return the access to the service of a data folder, making its secrets on the first call.

        Args:
            folder: is there already.
            clock: dates new tokens.

        Raises:
            InvalidInput: a file cannot be read or is not what was written.
            StoreNotWritable: the folder cannot be written.
        """
        # Not from a Clock or a seed: whoever could repeat these could forge tokens.
        access = cls(folder, clock, secret_files.write_once(folder / _SECRET, secrets.token_hex(_SECRET_BYTES)))
        admin = secret_files.write_once(folder / _ADMIN_TOKEN, _new_token())
        access._admin = sha256(admin.encode()).digest()
        access._load()
        return access

    @classmethod
    def mounted(cls, folder: Path) -> Self:
        """Return the access that several replicas share, by a folder that none of them writes.

        All its files may change at any time, as those of a Kubernetes Secret do.

        Args:
            folder: with `secret`, `admin.token` and, optionally, `tokens.json`, as `open` makes them elsewhere.

        Raises:
            InvalidInput: a file is missing, too short to be secret, or not what was written.
        """
        access = cls(folder, None, _mounted(folder / _SECRET))
        access._is_mounted = True
        access._reload()
        access._load()
        return access

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a service's secrets were made in the folder."""
        return (folder / _SECRET).exists()

    @classmethod
    def none(cls) -> Self:
        """Return the access to a service without tokens: everybody is admin."""
        return cls(None, None, secrets.token_hex(_SECRET_BYTES))

    @property
    def has_tokens(self) -> bool:
        """Whether callers are told apart."""
        return self._folder is not None

    def identify(self, token: str | None) -> Caller:
        """Return whom the token stands for.

        Args:
            token: as it came, or None where the caller showed none.

        Raises:
            Unauthorized: there is none, or it is unknown.
        """
        if self._folder is None:
            return Caller(user=ADMIN, role="admin")
        self._heed_the_mount()
        if token and token.startswith(_JOB_PREFIX):
            return self._job(token)
        if not token:
            raise Unauthorized("this needs a token: send the header `Authorization: Bearer TOKEN`")
        # What is compared and looked up are hashes: how long it takes tells nothing about the token.
        digest = sha256(token.encode("utf-8", "replace"))
        if hmac.compare_digest(digest.digest(), self._admin):
            return Caller(user=ADMIN, role="admin")
        if (who := self._tokens().get(digest.hexdigest())) is None:
            raise Unauthorized("this token is unknown or was revoked: ask for a new one (voda token create NAME)")
        return who

    def job_token(self, job_id: str) -> str:
        """Return the token with which the job's own processes report; the same on every call, and every replica."""
        self._heed_the_mount()
        return f"{_JOB_PREFIX}{job_id}.{self._seal(job_id)}"

    def add(self, name: str, role: Role) -> str:
        """Make a token for a user, keep its hash, and return it: nobody can tell it again.

        Raises:
            AlreadyExists: the user has one.
            InvalidInput: no such role, or no name for a user.
            StoreNotWritable: the folder cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"user {name[:80]!r}: a user's name has 1 to 63 of a-z, 0-9, '.', '_', '-' and '@', and begins and"
                " ends with a letter or digit"
            )
        if role not in ROLES:
            raise InvalidInput(f"role {role!r} is unknown, expected one of {', '.join(ROLES)}")
        file, clock = self._written(), self._clock
        assert clock is not None, "who writes the folder has a clock"
        token = _new_token()
        with secret_files.locked(file):
            tokens = _read(file)
            if name == ADMIN or any(other.name == name for other in tokens):
                raise AlreadyExists(f"user {name} has a token; revoke it first (voda token revoke {name})")
            made = Token(
                name=name,
                role=role,
                sha256=sha256(token.encode()).hexdigest(),
                created_at=datetime.fromtimestamp(clock.now(), UTC),
            )
            _write(file, [*tokens, made])
        return token

    def remove(self, name: str) -> None:
        """Revoke a user's token, at once and for good.

        Raises:
            NotFound: the user has none.
            StoreNotWritable: the folder cannot be written.
        """
        file = self._written()
        if name == ADMIN:
            raise InvalidInput(
                f"the admin's token cannot be revoked; to have a new one, remove {file.with_name(_ADMIN_TOKEN)} and"
                " start voda again"
            )
        with secret_files.locked(file):
            tokens = _read(file)
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                known = ", ".join(token.name for token in tokens) or "nobody"
                raise NotFound(f"user {name[:80]!r} has no token; there are tokens of {known}")
            _write(file, left)

    def list(self) -> Sequence[Token]:
        """Return what is kept of the tokens, oldest first; the admin's is not among them."""
        return _read(self._file())

    def _job(self, token: str) -> Caller:
        job_id, _, seal = token.removeprefix(_JOB_PREFIX).rpartition(".")
        if not hmac.compare_digest(seal.encode("utf-8", "replace"), self._seal(job_id).encode()):
            raise Unauthorized("this job token is not from here: the job was started by another voda")
        return Caller(user="", role="job", job_id=job_id)

    def _seal(self, job_id: str) -> str:
        return hmac.new(self._secret, job_id.encode("utf-8", "replace"), sha256).hexdigest()

    def _heed_the_mount(self) -> None:
        """Notice that the secrets were replaced; those that are not whole yet are not believed."""
        if self._is_mounted and self._stamps() != self._mounted_stamps:
            try:
                self._reload()
            except InvalidInput as error:
                _log.error("secrets not read, the former ones hold reason=%s", error)

    def _reload(self) -> None:
        assert self._folder is not None, "what is mounted is a folder"
        # Taken before reading: who writes meanwhile is noticed next time.
        self._mounted_stamps = self._stamps()
        secret, admin = _mounted(self._folder / _SECRET), _mounted(self._folder / _ADMIN_TOKEN)
        self._secret, self._admin = secret.encode(), sha256(admin.encode()).digest()

    def _stamps(self) -> tuple[secret_files.Stamp, ...]:
        return () if self._folder is None else tuple(secret_files.stamp_of(self._folder / name) for name in _MOUNTED)

    def _file(self) -> Path:
        if self._folder is None:
            raise InvalidInput("this service runs without tokens")
        return self._folder / _TOKENS

    def _written(self) -> Path:
        if self._is_mounted:
            raise InvalidInput(
                f"{self._folder} is mounted: change the tokens where they were made, and mount them again"
            )
        return self._file()

    def _tokens(self) -> Mapping[str, Caller]:
        """Return the tokens as they are in the file now: one revoked by another process is so at once."""
        if secret_files.stamp_of(self._file()) != self._stamp:
            try:
                self._load()
            except InvalidInput as error:
                # Whose token was revoked is not known any more, so nobody but the admin gets in.
                _log.error("tokens not read reason=%s", error)
                self._known = {}
        return self._known

    def _load(self) -> None:
        file = self._file()
        # Taken before reading: who writes meanwhile is noticed next time.
        self._stamp = secret_files.stamp_of(file)
        self._known = {token.sha256: Caller(user=token.name, role=token.role) for token in _read(file)}


def _mounted(file: Path) -> str:
    """Return what a secret file of a mounted folder holds.

    Raises:
        InvalidInput: it is missing or too short.
    """
    text = secret_files.read_secret(file).decode("utf-8", "replace").strip()
    if len(text) < _SHORTEST:
        found = f"has {len(text)}" if text else "is missing or empty"
        raise InvalidInput(
            f"{file}: expected at least {_SHORTEST} characters that nobody can guess, but it {found}: make the"
            f" files with `voda token create NAME --home FOLDER`, and mount {_SECRET}, {_ADMIN_TOKEN} and"
            f" {_TOKENS} of that folder"
        )
    return text


def _new_token() -> str:
    return f"voda_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _read(file: Path) -> Sequence[Token]:
    content = secret_files.read_secret(file)
    try:
        return msgspec.json.decode(content, type=list[Token]) if content else []
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{file} does not hold tokens ({error}); restore it, or remove it and create the tokens again"
        ) from error


def _write(file: Path, tokens: Sequence[Token]) -> None:
    secret_files.replace_content(file, msgspec.json.format(msgspec.json.encode(tokens), indent=2) + b"\n")
