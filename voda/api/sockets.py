"""Where voda listens: a TCP port, and the Unix socket at which users of this machine ask.

Rules: anybody may take a port while voda is down, so nothing rests on it where there is a socket, which is made so that
only its owner can put another in its place. Everybody may connect to it; who asks is what the kernel says of the peer.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from voda.auth.local_users import Peer
from voda.domain.errors import AlreadyExists, InvalidInput
from voda.files import unsafe_folder
from voda.process_table import is_listened_at, listener_on

MOST_BYTES: Final = 107
"""Of the path, as the kernel takes it."""
_log = logging.getLogger(__name__)
_CREDENTIALS: Final = struct.Struct("iII")
_ANSWER_S: Final = 2.0
BACKLOG: Final = 1_024
_HANDSHAKE_S: Final = 10.0
_ANYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_TAKEN_S: Final = 1.0
"""Between two attempts to listen at a port that another one has."""


def peer_of(transport: asyncio.BaseTransport) -> Peer | None:
    """Return the process at the other end when it connected; None where that is not a Unix socket."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family != socket.AF_UNIX:
        return None
    # Another object for the same file: the one that uvloop shows cannot be asked.
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=connected.fileno())
    try:
        return Peer(*_CREDENTIALS.unpack(own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))
    finally:
        own.detach()


@contextmanager
def bound_socket(path: Path) -> Iterator[socket.socket]:
    """Yield a socket of mode 0666 at the path, which is removed after the block; a missing folder is made.

    Raises:
        AlreadyExists: another process listens there.
        InvalidInput: the path cannot be used.
    """
    if len(os.fsencode(path)) > MOST_BYTES:
        raise InvalidInput(f"--socket {path}: a socket's path has at most {MOST_BYTES} bytes: choose a shorter one")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        try:
            _make_folder(path.parent)
            _remove_stale(path)
            listener.bind(os.fspath(path))
            path.chmod(0o666)
        except OSError as error:
            raise InvalidInput(f"--socket {path}: cannot listen there ({error.strerror or error})") from error
        made = os.lstat(path)
        try:
            yield listener
        finally:
            _unlink(path, made)
    finally:
        listener.close()


def _make_folder(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o755)
    if (unsafe := unsafe_folder(folder)) is not None:
        raise InvalidInput(
            f"--socket: others than user id {os.geteuid()} own or may write the folder {unsafe}, and could put another"
            " socket in the place of voda's: choose another folder"
        )


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed process left; refuse one that is in use, and anything else."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise InvalidInput(f"--socket {path}: something else is there; remove it, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            _unlink(path, found)
            return
        except (TimeoutError, BlockingIOError):
            pass  # its queue is full, so somebody made it
    raise AlreadyExists(f"--socket {path}: another process listens there; stop it, or choose another path")


def _unlink(path: Path, made: os.stat_result) -> None:
    """Remove the socket, unless another has taken its place."""
    with suppress(OSError):
        if os.path.samestat(os.lstat(path), made):
            path.unlink()


class PortListener:
    """A TCP port at which an application listens, or waits to; made by `serving`."""

    def __init__(self, listen: Callable[[], Awaitable[asyncio.Server]], host: str, *, is_secure: bool) -> None:
        self.url = ""
        """The address to ask; empty while it does not listen."""
        self.problem = ""
        """Why it does not, one sentence."""
        self._listen = listen
        self._host = host
        self._is_secure = is_secure
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; raises what `serving` does."""
        try:
            self._server = await self._listen()
        except AlreadyExists as error:
            self.problem = str(error)
            raise
        self.url, self.problem = _url(self._host, self._server, is_secure=self._is_secure), ""

    async def open_when_free(self) -> None:
        """Listen as soon as nobody else does, and nothing else is in the way, which is logged."""
        logged = ""
        while not self.url:
            try:
                await self.open()
            except AlreadyExists:
                pass
            except (InvalidInput, OSError) as error:
                self.problem = str(error)
                if self.problem != logged:
                    _log.warning("still not listening, trying on: %s", error)
                    logged = self.problem
            else:
                return
            await asyncio.sleep(_TAKEN_S)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


async def listen(
    connection: Callable[[], asyncio.Protocol], host: str, port: int, context: ssl.SSLContext | None
) -> asyncio.Server:
    """Listen at a port; raises what `serving` does."""
    try:
        server = await asyncio.get_running_loop().create_server(
            connection,
            host or None,
            port,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_S if context else None,
            backlog=BACKLOG,
        )
        if not server.sockets:
            # asyncio goes on without those that it cannot make, in want of file descriptors as well.
            server.close()
            raise OSError(errno.EMFILE, "no socket could be made: too many open files, or no such protocol")
        return server
    except socket.gaierror as error:
        raise InvalidInput(f"--host {host}: there is no such address ({error.strerror})") from error
    except OverflowError as error:
        raise InvalidInput(f"--port is {port}, expected 0 (any) to 65535") from error
    except OSError as error:
        raise _not_listening(error, host, port) from error


def _not_listening(error: OSError, host: str, port: int) -> AlreadyExists | InvalidInput:
    where = f"{host or 'all addresses'}, port {port}"
    if error.errno == errno.EADDRINUSE:
        return AlreadyExists(
            f"{where}: {_listener(port)}; stop it, or choose another port: --port 0 takes any that is free"
        )
    if error.errno == errno.EACCES:
        return InvalidInput(f"{where}: this needs more rights; choose a port above 1023 with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return InvalidInput(f"{where}: this machine does not have that address; choose another with --host")
    return InvalidInput(f"{where}: cannot listen there ({error.strerror or error})")


def _listener(port: int) -> str:
    """Return who listens on a port, as the subject and verb of a sentence."""
    if not is_listened_at(port):
        return (
            "nobody listens there, but a connection that has just ended keeps it, for a minute at most, or a program"
            " has it without listening"
        )
    if (found := listener_on(port)) is None:
        return f"another program listens there (root sees which: ss -ltnp 'sport = :{port}')"
    pid, program = found
    return f"{program} (process {pid}) listens there"


def context_of(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return what a server speaks TLS with; raises InvalidInput where the files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for file in (certificate, key):
        try:
            file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error
    try:
        # A key that is locked by a password would make the server ask for it on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidInput(
            f"{certificate} and {key} are not a certificate and its key without a password, both PEM ({error})"
        ) from error
    return context


def _url(host: str, listener: asyncio.Server, *, is_secure: bool) -> str:
    port = listener.sockets[0].getsockname()[1]
    name = _ANYWHERE.get(host, host)
    return f"{'https' if is_secure else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"
