"""The client for asyncio: the methods of the sync one, each call in a thread of its own."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from voda.client.async_http import iterate_in_thread, run_in_thread
from voda.client.client import Client, JobChanges, JobFilters, JobName, SettingsChanges, client_over
from voda.client.documents import Manifest
from voda.client.exec.session import ExecResult
from voda.client.http import ANSWER_S, RETRY_S
from voda.client.job_wait import JobGoal
from voda.client.records import Event, Identity, Job, Jobs, Settings, Submission

T = TypeVar("T")


class AsyncClient:
    """A client of one server for asyncio; see `voda.client.Client` for what each argument and method means."""

    def __init__(  # noqa: PLR0913 - each may be given
        self,
        server: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
        *,
        timeout_s: float = ANSWER_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._client = Client(server, token, ca, home, timeout_s=timeout_s, retry_s=retry_s)
        self._http = self._client.http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._client.server

    async def submit(self, manifest: Manifest, *, dry_run: bool = False, key: str | None = None) -> Submission:
        """Submit an MPIJob or PyTorchJob: a mapping, YAML or JSON text, or the path of a file; or a program."""
        return await self._run(lambda client: client.submit(manifest, dry_run=dry_run, key=key))

    async def get(self, job: JobName) -> Job:
        """Return a job as it is now."""
        return await self._run(lambda client: client.get(job))

    async def list(self, *, limit: int = 500, **filters: Unpack[JobFilters]) -> Jobs:
        """Return the jobs that match, live and ended, as they were submitted; at most `limit`, 0 = all."""
        return await self._run(lambda client: client.list(limit=limit, **filters))

    async def wait(self, job: JobName, *, for_: JobGoal = "ended", timeout_s: float | None = None) -> Job:
        """Wait until a job is in a state, and return it; one that has run and ended counts as running, too."""
        return await self._run(lambda client: client.wait(job, for_=for_, timeout_s=timeout_s))

    def logs(
        self, job: JobName, *, replica: str | None = None, tail: int | None = None, follow: bool = False
    ) -> AsyncGenerator[str, None]:
        """Yield what a job printed, line by line."""
        return iterate_in_thread(
            self._http, lambda http: client_over(http).logs(job, replica=replica, tail=tail, follow=follow)
        )

    async def exec(
        self,
        job: JobName,
        argv: Sequence[str],
        *,
        replica: str | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command beside a replica of a running job; canceled, it ends the command."""
        return await self._run(lambda client: client.exec(job, argv, replica=replica, stdin=stdin, timeout_s=timeout_s))

    async def cancel(self, job: JobName, *, reason: str = "") -> Job:
        """Cancel a job and return it; a job that has ended stays as it is."""
        return await self._run(lambda client: client.cancel(job, reason=reason))

    async def halt(self, job: JobName, *, reason: str = "") -> Job:
        """Halt a job and return it: it gives its GPUs back, and gets none until it is resumed."""
        return await self._run(lambda client: client.halt(job, reason=reason))

    async def resume(self, job: JobName) -> Job:
        """Let a halted job have GPUs again, and return it."""
        return await self._run(lambda client: client.resume(job))

    async def rerun(self, job: JobName) -> Submission:
        """Submit the manifest of a job that has ended again, as the next run of its name."""
        return await self._run(lambda client: client.rerun(job))

    async def scale(self, job: JobName, **changes: Unpack[JobChanges]) -> Job:
        """Change the replicas, the priority or the epochs of a live job, and return it; the rest stays."""
        return await self._run(lambda client: client.scale(job, **changes))

    def events(
        self, *, job: JobName | None = None, types: Sequence[str] = (), after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield what happens, for ever: each event once and in order, also where the connection is cut."""
        return iterate_in_thread(self._http, lambda http: client_over(http).events(job=job, types=types, after=after))

    async def settings(self, pool: str | None = None) -> Settings:
        """Return how a pool is decided; by default the only one."""
        return await self._run(lambda client: client.settings(pool))

    async def change_settings(self, pool: str | None = None, **changes: Unpack[SettingsChanges]) -> Settings:
        """Change how a pool is decided, and return it; the rest stays."""
        return await self._run(lambda client: client.change_settings(pool, **changes))

    async def whoami(self) -> Identity:
        """Return whom the server takes you for."""
        return await self._run(lambda client: client.whoami())

    async def _run(self, work: Callable[[Client], T]) -> T:
        return await run_in_thread(self._http, lambda http: work(client_over(http)))
