"""What a hostile user and its jobs try, each until the place closes: a process of its own.

Rule: all draws come from the seed; whatever voda answers is taken, for refusals are as good as any.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final

from benchmarks.served import manifest
from tests.hostile.people import Place, ask, token_of

_EXPLAINS: Final = 95
_HEADS: Final = 200
_HEAD_BYTES: Final = 60_000
_CROWD: Final = 50
_PADDING: Final = 9
"""Variables of 100 kB in a manifest of 900 kB."""
_METRICS: Final = {f"{number:03}{'m' * 195}": 1.0 for number in range(100)}
_PROGRAMS: Final = (
    "trap '' TERM INT HUP; while :; do sleep 1; done",
    "trap '' TERM; for i in $(seq 150); do (trap '' TERM; exec sleep 300) & done; wait",
    "for log in logs/* ../*/logs/* /proc/self/fd/1; do head -c 9000000 /dev/zero >> $log; done; sleep 60",
    "cat /dev/urandom | od | head -c 30000000; exit 1",
    "for fd in 3 4 5 6 7 8 9 10 11 12; do echo x >&$fd; done; ln -s /etc logs2; mkfifo pipe; sleep 30",
    "kill -9 $PPID; kill -9 -1; sleep 60",
)
_HUGE: Final = (10**9, 999_999_937, 10**18, 2**63, -(10**9), 0)


def explain(place: Place) -> None:
    """Keep as many explanations under way as one user may have."""
    moments = ("?at=%2B1h", "?at=-1s", "")

    async def ask_again(number: int) -> None:
        while place.is_open():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(20):
                    reader, writer = await asyncio.open_unix_connection(str(place.socket))
                    path = f"/api/v1/jobs/honest-1/explain{moments[number % len(moments)]}"
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    await reader.read()
                    writer.close()
            await asyncio.sleep(0.05)

    async def ask_all() -> None:
        await asyncio.gather(*(ask_again(number) for number in range(_EXPLAINS)))

    asyncio.run(ask_all())


def submit(place: Place) -> None:
    """Submit manifests as large as are taken, and cancel them."""
    chance = place.chance("submit")
    while place.is_open():
        body = manifest(f"large-{chance.randrange(4)}", "sleep 60")
        container = body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": f"V{number}", "value": "v" * 100_000} for number in range(_PADDING)]
        body["metadata"]["labels"] = {f"l{number}": "x" * 60 for number in range(60)}
        _cancel(place, _submitted(place, body))


def report(place: Place) -> None:
    """Flood voda with the largest reports that it takes."""
    while place.is_open():
        job_id = _submitted(place, manifest("reports", 'echo "$VODA_JOB_TOKEN"; sleep 300'))
        token, epoch = token_of(place, job_id) if job_id else "", 0
        while token and place.is_open():
            epoch += 1
            _tried(place, "POST", f"/jobs/@{job_id}/progress", {"epoch": epoch, "metrics": _METRICS}, token=token)
        _cancel(place, job_id)
        time.sleep(0.5)


def begin_heads(place: Place) -> None:
    """Hold connections whose requests never end."""
    chance = place.chance("heads")
    while place.is_open():
        with ExitStack() as crowd, suppress(OSError):
            for number in range(_HEADS):
                is_local = number % 2
                one = crowd.enter_context(socket.socket(socket.AF_UNIX if is_local else socket.AF_INET))
                one.settimeout(2)
                one.connect(str(place.socket) if is_local else ("127.0.0.1", place.port))
                with suppress(OSError):
                    one.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 15_000 + b"\r\n" * (number % 3 == 0))
                    one.sendall(b"Y: " + b"y" * chance.randrange(_HEAD_BYTES))
            time.sleep(chance.uniform(0.5, 3))


def connect(place: Place) -> None:
    """Connect and drop, as fast as it goes, and try to take voda's port."""
    chance = place.chance("connect")
    while place.is_open():
        with ExitStack() as crowd:
            for _ in range(chance.randrange(_CROWD)):
                one = crowd.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                with suppress(OSError):
                    one.connect(str(place.socket))
            listener = crowd.enter_context(socket.socket())
            with suppress(OSError):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind(("127.0.0.1", place.port))
                listener.listen()


def run_jobs(place: Place) -> None:
    """Run programs that ignore, fork, write and kill, and end them."""
    chance = place.chance("jobs")
    while place.is_open():
        body = manifest(f"evil-{chance.randrange(6)}", chance.choice(_PROGRAMS), most=chance.choice((1, 1, 2)))
        pod = body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = chance.choice((0, 1, 30, 10**9))
        body["metadata"]["annotations"]["voda.dev/priority"] = str(chance.choice((-5, 0, 999, 10**9)))
        job_id = _submitted(place, body)
        time.sleep(chance.uniform(0.5, 4))
        _cancel(place, job_id)


def lie(place: Place) -> None:
    """Ask for figures without bounds, and report them."""
    chance = place.chance("lies")
    while place.is_open():
        body = manifest(f"train-{chance.randrange(9)}", 'echo "$VODA_JOB_TOKEN"; sleep 20')
        body["metadata"]["annotations"] |= _huge(chance, "epochs", "priority", "max-replicas", "array")
        container = body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        if chance.random() < 0.3:
            container["resources"] = {
                "limits": {chance.choice(("cpu", "memory")): chance.choice(("9e30", "1n", "4Ei"))}
            }
        if not (job_id := _submitted(place, body)):
            continue
        token = token_of(place, job_id)
        for _ in range(5 if token else 0):
            numbers = {name: chance.choice((1e9, 1e-300, 1e15, 5e-324)) for name in ("epoch_time_s", "samples_per_s")}
            said = {"epoch": chance.choice((1, 1e-9, 1e9)), **numbers, "metrics": {"x": 1.7e308}}
            _tried(place, "POST", f"/jobs/@{job_id}/progress", said, token=token)
        _tried(place, "PATCH", f"/jobs/@{job_id}", {"priority": chance.choice(_HUGE), "epochs": chance.choice(_HUGE)})
        time.sleep(1)
        _cancel(place, job_id)


ATTACKS: Final[Mapping[str, Callable[[Place], None]]] = {
    "explain": explain,
    "submit": submit,
    "report": report,
    "heads": begin_heads,
    "connect": connect,
    "jobs": run_jobs,
    "lies": lie,
}


def _huge(chance: Random, *names: str) -> dict[str, str]:
    return {f"voda.dev/{name}": str(chance.choice(_HUGE)) for name in names if chance.random() < 0.3}


def _submitted(place: Place, body: Mapping[str, Any]) -> str:
    status, said = _tried(place, "POST", "/jobs", body)
    return str(said["job"]["job_id"]) if status == 201 else ""


def _cancel(place: Place, job_id: str) -> None:
    if job_id:
        _tried(place, "DELETE", f"/jobs/@{job_id}")


def _tried(place: Place, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
    """Ask once; what cannot be sent or is not answered counts as status 0."""
    try:
        status, said = ask(place, method, path, body, token=token)
    except (OSError, ValueError, json.JSONDecodeError):
        return 0, None
    if status == 429:
        time.sleep(0.2)
    return status, said
