"""The two secrets of a server: what seals the tokens of jobs and the logins, and the hash of the admin's token."""

import logging
from hashlib import sha256
from pathlib import Path
from typing import Final

from voda.auth import secret_files
from voda.domain.errors import InvalidInput

SECRET: Final = "secret"
ADMIN_TOKEN: Final = "admin.token"
_MOUNTED: Final = (SECRET, ADMIN_TOKEN)
_SHORTEST: Final = 32
"""Characters of a secret that an operator made: a guessed one would make its finder admin."""

_log = logging.getLogger(__name__)


class ServerSecrets:
    """Secrets that stay."""

    def __init__(self, seal: str, admin_token: str = "") -> None:
        self._seal = seal.encode()
        self._admin = sha256(admin_token.encode()).digest()

    @property
    def seal(self) -> bytes:
        return self._seal

    @property
    def admin(self) -> bytes:
        """SHA-256 of the admin's token."""
        return self._admin


class MountedSecrets(ServerSecrets):
    """Those of a folder that others write: read again once they changed, and kept while the new ones are incomplete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Before reading, so that a write meanwhile is noticed next time.
        self._stamps = self._present_stamps()
        super().__init__(*self._read())

    @property
    def seal(self) -> bytes:
        self._renew()
        return self._seal

    @property
    def admin(self) -> bytes:
        self._renew()
        return self._admin

    def _renew(self) -> None:
        if (stamps := self._present_stamps()) == self._stamps:
            return
        self._stamps = stamps
        try:
            super().__init__(*self._read())
        except InvalidInput as error:
            _log.error("secrets not read, the former ones stay in force reason=%s", error)

    def _present_stamps(self) -> tuple[secret_files.Stamp, ...]:
        return tuple(secret_files.stamp_of(self._folder / name) for name in _MOUNTED)

    def _read(self) -> tuple[str, str]:
        seal, admin_token = (_mounted(self._folder / name) for name in _MOUNTED)
        return seal, admin_token


def _mounted(file: Path) -> str:
    """Return the content of a secret file in a mounted folder; raises InvalidInput where it is missing or too short."""
    text = secret_files.read_secret(file).decode("utf-8", "replace").strip()
    if len(text) < _SHORTEST:
        state = f"has {len(text)}" if text else "is missing or empty"
        raise InvalidInput(
            f"{file}: expected at least {_SHORTEST} characters that nobody can guess, but it {state}: make the"
            f" files with `voda token create NAME --home FOLDER`, and mount {SECRET}, {ADMIN_TOKEN} and"
            " tokens.json of that folder"
        )
    return text
