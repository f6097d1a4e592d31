"""Run a program that insists on a port or a folder apart from this machine's, so that others can have the same.

`apart.py --port PORT PROGRAM ARGUMENT...`: in a network of its own, from which this port of the machine is reached.
`apart.py --folder OWN SHOWN PROGRAM ARGUMENT...`: with a folder of its own where it looks for another.

Rule: standard library only; told to end, both end, and nothing of what was made for the program is left.
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from contextlib import suppress

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the program, and return how it ended."""
    if sys.argv[1] == "--folder":
        own, shown, *command = sys.argv[2:]
        _show(own, shown)
        os.execv(command[0], command)
    return _run_in_own_network(int(sys.argv[2]), sys.argv[3:])


def _show(own: str, shown: str) -> None:
    """Let this process, and nobody else, see a folder where another is."""
    os.makedirs(shown, exist_ok=True)
    _leave(_CLONE_NEWNS)
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "making mounts private")
    _check(_LIBC.mount(own.encode(), shown.encode(), None, _MS_BIND, None), f"mounting {own} on {shown}")


def _run_in_own_network(port: int, command: list[str]) -> int:
    ours, its = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _leave(_CLONE_NEWNET)
        _raise_loopback()
        with socket.create_server(("127.0.0.1", port)) as listener:
            socket.send_fds(its, [b"x"], [listener.fileno()])
        os.execv(command[0], command)
    its.close()
    _, [listening], _, _ = socket.recv_fds(ours, 1, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: os.kill(child, got))
    return asyncio.run(_relay(socket.socket(fileno=listening), port, child))


def _leave(namespace: int) -> None:
    # Only root may do so among the users of this machine; others may among users of their own.
    _check(_LIBC.unshare(namespace if os.geteuid() == 0 else namespace | _CLONE_NEWUSER), "a namespace of its own")


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what} failed: {os.strerror(ctypes.get_errno())}")


async def _relay(listener: socket.socket, port: int, child: int) -> int:
    """Carry what comes in there to the same port here, until the program ends; return how it did."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, here), carry(there, writer))

    server = await asyncio.start_server(connected, sock=listener)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    server.close()
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
