"""The real API in a thread of its own, so that a test can run commands against it as a user does.

with served() as server:
    server.voda("get")
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from click.testing import CliRunner, Result

from tests.relay import Relay, relayed
from tests.service import Service, a_service
from voda.cli import build_app
from voda.clock import SystemClock
from voda.cluster.port import EVERY_LINE, LineTimes
from voda.domain.errors import InvalidInput, VodaError
from voda.events.types import AnyFact

T = TypeVar("T")
_LIMIT_S = 60.0


class Printed:
    """Outputs that are what a test says: (job id, replica) -> bytes."""

    def __init__(self, printed: Mapping[tuple[str, str], bytes]) -> None:
        self._printed = dict(printed)

    def add(self, job_id: str, replica: str, text: bytes) -> None:
        """Let a replica have printed something."""
        self._printed[job_id, replica] = text

    async def replicas(self, job_id: str) -> Sequence[str]:
        """Return the replicas of the job that have output."""
        return [replica for job, replica in self._printed if job == job_id]

    async def read(
        self,
        job_id: str,
        replica: str,
        *,
        tail_bytes: int | None,
        follow: bool,
        times: LineTimes = EVERY_LINE,
    ) -> AsyncIterator[bytes]:
        """Yield what was printed, in two pieces; following ends at once, as for a job that has ended."""
        if (job_id, replica) not in self._printed:
            raise InvalidInput(f"job {job_id} has no replica {replica!r}")
        text = self._printed[job_id, replica]
        if tail_bytes is not None and tail_bytes < len(text):
            _, _, text = text[len(text) - tail_bytes - 1 :].partition(b"\n")
        yield text[: len(text) // 2]
        yield text[len(text) // 2 :]


@dataclass(frozen=True, slots=True)
class Server:
    """A served backend in another thread, and the command line that asks it."""

    home: Path
    service: Service
    loop: asyncio.AbstractEventLoop

    def fails(self, *arguments: str) -> tuple[Result, VodaError]:
        """Run a command that is refused, and return what it printed and the error that it ends with."""
        result = self._run(*arguments)
        assert isinstance(result.exception, VodaError), result.output
        return result, result.exception

    def voda(self, *arguments: str, exit_code: int = 0, **options: Any) -> Result:
        """Run a command against the server, and check its exit status."""
        result = self._run(*arguments, **options)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        return result

    def _run(self, *arguments: str, **options: Any) -> Result:
        environment = {"VODA_HOME": str(self.home), "VODA_SERVER": "", "VODA_TOKEN": "", "COLUMNS": "80"}
        return CliRunner().invoke(build_app(), [*arguments], env=environment, **options)

    def does(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, run in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_LIMIT_S)

    def begins(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine in the server's loop, beside what the test does."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    @contextmanager
    def behind_a_relay(self, *, loses: int = 0) -> Iterator[Relay]:
        """Have commands reach the server through a relay for the length of the block."""
        carrying = relayed(self.service.url, loses=loses)
        relay = self.does(carrying.__aenter__())
        publish(self.home, relay.url)
        try:
            yield relay
        finally:
            publish(self.home, self.service.url)
            self.does(carrying.__aexit__(None, None, None))

    def happens(self, *facts: AnyFact) -> int:
        """Record facts and return the last one's position."""
        return [self.does(self.service.happens(fact)) for fact in facts][-1]


async def under_way(server: Server) -> None:
    """Wait until the server answers a command, such as one that follows live events."""
    async with asyncio.timeout(_LIMIT_S):
        while True:
            told = (await server.service.ask("GET", "/metrics")).body.decode().splitlines()
            figures = (line.split()[-1] for line in told if line.startswith("voda_http_requests_in_progress "))
            # One is the question itself.
            if sum(map(float, figures)) > 1:
                return
            await asyncio.sleep(0.01)


@contextmanager
def served(home: Path, **fields: Any) -> Iterator[Server]:
    """Yield a server on this machine's loopback, written down in `home`; the fields are those of `a_service`."""
    made: list[Server] = []
    failed: list[BaseException] = []
    is_up, ends = threading.Event(), asyncio.Event()

    async def serve(opened: Callable[[], AbstractAsyncContextManager[Service]]) -> None:
        async with opened() as service:
            made.append(Server(home, service, asyncio.get_running_loop()))
            is_up.set()
            await ends.wait()

    def run() -> None:
        try:
            asyncio.run(serve(lambda: a_service(**{"clock": SystemClock(), **fields})))
        except BaseException as error:
            failed.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        assert is_up.wait(_LIMIT_S)
        if failed:
            raise failed[0]
        (server,) = made
        publish(home, server.service.url)
        yield server
    finally:
        if made and thread.is_alive():
            made[0].loop.call_soon_threadsafe(ends.set)
        thread.join(_LIMIT_S)
        assert not thread.is_alive(), "the server does not end"
    if failed:
        raise failed[0]


def publish(home: Path, url: str) -> None:
    """Write down where the server is, as `voda up` does."""
    (home / "server.json").write_bytes(msgspec.json.encode({"url": url, "pid": 1, "version": "0"}))
