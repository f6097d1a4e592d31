"""Finds the server to ask, and the token to send.

Rule: the admin token of this machine's voda is only ever sent to this machine's voda.
"""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from voda import config
from voda.domain.errors import InvalidInput, NotFound

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    url: str
    """Without a slash at its end."""
    token: str
    source: str
    """Where the address comes from, for messages."""
    tls: ssl.SSLContext | None = None

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, and sees the same folders."""
        return urlsplit(self.url).hostname in _LOOPBACK


def target(where: NamedServer) -> Target:
    """Return the server: the one named, else VODA_SERVER's, else the one that runs on the data folder.

    Raises:
        NotFound: no server is named, and none runs here.
        InvalidInput: the address or a file cannot be used.
    """
    home = where.home or config.home_folder()
    here = _server_file(home / "server.json")
    # --home means the voda that works on that folder.
    if named := where.server or ("" if where.home else config.server_url()):
        url, source = _url(named), "--server" if where.server else "VODA_SERVER"
    elif here.url:
        url, source = _url(here.url), str(home / "server.json")
    else:
        raise NotFound(
            f"no voda is running here (looked for {home / 'server.json'}); start one with `voda up`, or name one"
            " with --server"
        )
    token = where.token or config.token()
    is_ours = bool(here.url) and _is_same(url, here.url)
    if not token and is_ours:
        token = _read(home / "admin.token").strip()
    trusted = str(where.ca or "") or config.certificate() or (here.certificate if is_ours else "")
    return Target(url=url, token=token, source=source, tls=_tls(url, trusted))


def _server_file(file: Path) -> _RunningServer:
    if not (text := _read(file)):
        return _RunningServer()
    try:
        found = json.loads(text)
        url, certificate = (found.get(name, "") for name in ("url", "certificate"))
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{file} is not what `voda up` writes ({error}); name the server with --server") from error
    if not isinstance(url, str) or not isinstance(certificate, str):
        raise InvalidInput(f"{file} is not what `voda up` writes; name the server with --server")
    return _RunningServer(url, certificate)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError as error:
        raise InvalidInput(
            f"{file} belongs to another user's voda; ask that user for a token and pass --server and --token"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not what `voda up` writes; name the server with --server") from error


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidInput(
            f"{text[:200]!r} is not the address of a server: expected http://HOST:PORT or https://HOST:PORT"
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
