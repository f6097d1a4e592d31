"""The Unix socket at which users of this machine ask: made so that only its owner can put another in its place.

Rule: everybody may connect; who asks is what the kernel says of the peer, never what the peer says.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from voda.auth.local_users import Peer
from voda.domain.errors import AlreadyExists, InvalidInput
from voda.files import unsafe_folder

MOST_BYTES: Final = 107
"""Of the path, as the kernel takes it."""
_CREDENTIALS: Final = struct.Struct("iII")
_ANSWER_S: Final = 2.0


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
        except TimeoutError:
            pass  # its queue is full, so somebody made it
    raise AlreadyExists(f"--socket {path}: another process listens there; stop it, or choose another path")


def _unlink(path: Path, made: os.stat_result) -> None:
    """Remove the socket, unless another has taken its place."""
    with suppress(OSError):
        if os.path.samestat(os.lstat(path), made):
            path.unlink()
