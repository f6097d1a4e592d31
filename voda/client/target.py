"""Finds the server to ask, and the token to send.

Rule: the admin token of this machine's voda is only ever sent to this machine's voda.
"""

import json
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from voda import config
from voda.client.errors import ServerUnreachable
from voda.domain.errors import InvalidInput, NotFound

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SOCKET = "unix://"


class _NotOurs(InvalidInput):
    """The file belongs to another user's voda."""


class NamedServer(Protocol):
    """What the user says about the server; empty or None = not said."""

    @property
    def server(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def home(self) -> Path | None: ...
    @property
    def ca(self) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class _RunningServer:
    url: str = ""
    certificate: str = ""
    socket: str = ""
    is_gone: bool = False
    """Whether its process is not there any more: it was killed, or the machine restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    url: str
    """Without a slash at its end; unix:///PATH for a Unix socket."""
    token: str
    source: str
    """Where the address comes from, for messages."""
    tls: ssl.SSLContext | None = None

    @property
    def socket(self) -> str:
        """Path of the server's Unix socket; empty where it is asked over TCP."""
        return _socket(self.url)

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, and sees the same folders."""
        return bool(self.socket) or urlsplit(self.url).hostname in _LOOPBACK


def target(where: NamedServer) -> Target:
    """Return the server: the one named, else VODA_SERVER's, else the one that runs on the data folder, else the
    machine's, which root runs for all users.

    Raises:
        NotFound: no server is named, and none runs here.
        InvalidInput: the address or a file cannot be used.
        ServerUnreachable: the one that ran on the data folder has ended without a word.
    """
    home = where.home or config.home_folder()
    # --home means the voda that works on that folder.
    named = where.server or ("" if where.home else config.server_url())
    has_machine = not where.home and _has_socket(config.MACHINE_SOCKET)
    try:
        here = _server_file(home / "server.json")
    except _NotOurs:
        # HOME may still be that of another user, after su or sudo.
        if not named and not has_machine:
            raise
        here = _RunningServer()
    if named:
        url, source = _url(named), "--server" if where.server else "VODA_SERVER"
    elif (here.socket or here.url) and not (here.is_gone and has_machine):
        url, source = _url(_SOCKET + here.socket if here.socket else here.url), str(home / "server.json")
    elif has_machine:
        url, source = f"{_SOCKET}{config.MACHINE_SOCKET}", "the default socket"
    else:
        machine = "" if where.home else f" and {config.MACHINE_SOCKET}"
        raise NotFound(
            f"no voda is running here (looked for {home / 'server.json'}{machine}); start one with `voda up`, or name"
            " one with --server"
        )
    token = where.token or config.token()
    is_ours = bool(here.url) and _is_same(url, here.url)
    if is_ours and here.is_gone and not named:
        # Any user may have taken its port since.
        raise ServerUnreachable(f"the voda of {home / 'server.json'} does not run any more: is `voda up` running?")
    if not token and is_ours and not here.is_gone:
        token = _read(home / "admin.token").strip()
    trusted = str(where.ca or "") or config.certificate() or (here.certificate if is_ours else "")
    return Target(url=url, token=token, source=source, tls=_tls(url, trusted))


def is_roots(home: Path) -> bool:
    """Return whether the voda that runs here is the one that root runs for all users, and none on this data folder."""
    if os.geteuid() == 0 or not _has_socket(config.MACHINE_SOCKET):
        return False
    try:
        here = _server_file(home / "server.json")
    except InvalidInput:
        return True
    return here.is_gone or not (here.url or here.socket)


def _server_file(file: Path) -> _RunningServer:
    if not (text := _read(file)):
        return _RunningServer()
    try:
        found = json.loads(text)
        texts = [found.get(name, "") for name in ("url", "certificate", "socket")]
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{file} is not what `voda up` writes ({error}); name the server with --server") from error
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"{file} is not what `voda up` writes; name the server with --server")
    url, certificate, socket = texts
    is_gone = _is_gone(found.get("pid"), file)
    return _RunningServer(url=url, certificate=certificate, socket=socket, is_gone=is_gone)


def _is_gone(pid: object, file: Path) -> bool:
    """Return whether the process that wrote the file is not there: by its id, and by its user, whom others are not."""
    number = pid if isinstance(pid, int) and pid > 0 else os.getpid()
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # another user's
    try:
        return os.stat(f"/proc/{number}").st_uid != file.stat().st_uid
    except OSError:
        return False  # this machine shows none of other users


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError as error:
        raise _NotOurs(
            f"{file} belongs to another user's voda; ask that user for a token and pass --server and --token"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not what `voda up` writes; name the server with --server") from error


def _has_socket(path: Path) -> bool:
    """Return whether there is a socket of root's, or of one's own, which no other user can have put there."""
    ours = {0, os.geteuid()}
    try:
        folder = path.parent.stat()
        is_safe = folder.st_uid in ours and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return is_safe and path.is_socket() and path.stat().st_uid in ours
    except OSError:
        return False


def _socket(url: str) -> str:
    return url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else ""


def _url(text: str) -> str:
    if text.startswith("unix:"):
        if not _socket(text).startswith("/"):
            raise InvalidInput(f"{text[:200]!r} is not the address of a socket: expected unix:///PATH")
        return text
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidInput(
            f"{text[:200]!r} is not the address of a server: expected http://HOST:PORT, https://HOST:PORT or"
            " unix:///PATH"
        )
    return url.rstrip("/")


def _is_same(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    hosts = {first.hostname, second.hostname}
    return first.port == second.port and first.scheme == second.scheme and (len(hosts) == 1 or hosts <= _LOOPBACK)


def _tls(url: str, trusted: str) -> ssl.SSLContext | None:
    if not url.startswith("https:"):
        return None
    context = ssl.create_default_context()
    if not trusted:
        return context
    try:
        context.load_verify_locations(trusted)
    except OSError as error:
        raise InvalidInput(f"{trusted} cannot be used as a certificate to trust: {error.strerror or error}") from error
    # The file may hold the certificate itself instead of its issuer.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    # Certificates rarely name a loopback address.
    context.check_hostname = urlsplit(url).hostname not in _LOOPBACK
    return context
