"""The client: what can be asked of a server, as methods.

Rules: a job is named by its name (your own first), as OWNER/NAME, by its id as @ID, or by what a method returned; each
method raises voda's errors with the server's sentence, and repeats its request for `retry_s` while the server is away.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, Unpack

from voda import config
from voda.auth.callers import CallerView
from voda.client.connection import HttpCall
from voda.client.decoding import decode
from voda.client.documents import Manifest, SubmitPlace, clear_old_code, documents_of
from voda.client.exec.session import PROTOCOL, ExecResult, MemoryStreams, carry, start_of
from voda.client.going_on import goes_on_query
from voda.client.http import ANSWER_S, RETRY_S, HttpClient, resource_path
from voda.client.job_output import JobOutput
from voda.client.job_wait import JobGoal, JobWait
from voda.client.records import HasJobId, Jobs
from voda.clock import SystemClock
from voda.domain.errors import AlreadyExists, InvalidInput
from voda.domain.settings import Settings, SettingValue
from voda.programs.program import Program
from voda.wire.base import ServiceView
from voda.wire.events import EventView
from voda.wire.jobs import JobList, JobView, SubmissionView

JobName = str | HasJobId
_PAGE: Final = 100


class JobFilters(TypedDict, total=False):
    """Which jobs, and in which order."""

    phase: str | Sequence[str]
    """Such as Running; `live` stands for all that have not ended."""
    pool: str
    user: str
    namespace: str
    name: str
    array: str
    """Tasks of the array of that name."""
    selector: str
    """Of labels, such as team=vision,stage!=test."""
    sort: str
    """submitted_at, priority, name, phase or replicas; descending with `-` before it."""


class JobPatchFields(TypedDict, total=False):
    """What of a live job can be changed."""

    min_replicas: int
    max_replicas: int
    requested_replicas: int
    sizes: str
    """All at which it runs, such as 1,2,4,8 or 2-16:2."""
    priority: int
    epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerArguments:
    server: str
    token: str
    home: Path | None
    ca: Path | None


class Client:
    """A client of one server; its methods may be called from several threads.

    Args:
        server: its address; by default VODA_SERVER, else the voda that runs on this machine.
        token: by default VODA_TOKEN, else that of this machine's voda, which no other server is shown.
        ca: the certificate to trust, a file; by default VODA_CA.
        home: data folder of this machine's voda; by default VODA_HOME.
        timeout_s: how long one answer may take.
        retry_s: how long the server may be away before a call fails.
    """

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
        where = _ServerArguments(
            server=server or "", token=token or "", home=Path(home) if home else None, ca=Path(ca) if ca else None
        )
        self.http = HttpClient(where, timeout_s=timeout_s, retry_s=retry_s)
        """What asks the server."""

    def close(self) -> None:
        """End all requests; the client cannot be used any more."""
        self.http.cancellation.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        """The address of the server."""
        return self.http.target.url

    def submit(self, manifest: Manifest, *, dry_run: bool = False, key: str | None = None) -> SubmissionView:
        """Submit an MPIJob or PyTorchJob: a mapping, YAML or JSON text, or the path of a file; or a program.

        Submits with the same `key` count once; by default each call has a new one, so that a lost answer never
        submits a job twice. `dry_run` checks the manifest and submits nothing. On the server's own machine, a mapping
        or a program begins in the present folder where it names none.
        """
        folder = os.getcwd() if self.http.target.is_here else ""
        query = {"dry_run": "true"} if dry_run else None
        failure: AlreadyExists | None = None
        place = SubmitPlace(folder, config.code_folder(), lambda: _service(self.http).gpu_resource)
        for document in documents_of(manifest, place):
            headers = {"Content-Type": document.media_type, "Idempotency-Key": key or SystemClock().new_id()}
            call = HttpCall(method="POST", path="/jobs", params=query, headers=headers, body=document.body)
            try:
                made = decode(self.http.ask_repeatedly(call).body, SubmissionView)
            except AlreadyExists as error:
                if key:
                    raise
                failure = error
            else:
                if isinstance(manifest, Program):
                    clear_old_code(self.http)
                return made
        assert failure is not None, "there is a document at least"
        raise failure

    def get(self, job: JobName) -> JobView:
        """Return a job as it is now."""
        return decode(self.http.ask_repeatedly(HttpCall(path=_path(job))).body, JobView)

    def list(self, *, limit: int = 500, **filters: Unpack[JobFilters]) -> Jobs:
        """Return the jobs that match, live and ended, as they were submitted; at most `limit`, 0 = all."""
        query = _given(filters)
        found: tuple[JobView, ...] = ()
        while True:
            size = min(_PAGE, limit - len(found)) if limit else _PAGE
            call = HttpCall(path="/jobs", params={**query, "limit": size})
            page = decode(self.http.ask_repeatedly(call).body, JobList)
            found += page.items
            if not page.next or not page.items or len(found) == limit:
                return Jobs(found, total=page.total)
            query["continue"] = page.next

    def wait(self, job: JobName, *, for_: JobGoal = "ended", timeout_s: float | None = None) -> JobView:
        """Wait until a job is in a state, and return it; one that has run and ended counts as running, too.

        It follows the server's events about the job, and looks at it on a timer where there are none.

        Raises:
            WaitTimeout: not within `timeout_s`.
            WrongState: the job has ended otherwise and will never get there.
        """
        return JobWait(self.http, for_, timeout_s).run(_path(job))

    def logs(
        self, job: JobName, *, replica: str | None = None, tail: int | None = None, follow: bool = False
    ) -> Generator[str, None, None]:
        """Yield what a job printed, line by line: that of its launcher, or of its first worker, or of `replica`.

        Args:
            job: which one.
            replica: such as worker-1.
            tail: only so many last lines.
            follow: wait for its start, and go on until it has ended; a connection that is cut resumes, except with
                `tail`.
        """
        path = _path(job)

        def has_ended() -> bool:
            return decode(self.http.ask(HttpCall(path=path)).body, JobView).has_ended

        output = JobOutput(http=self.http, path=f"{path}/logs", replica=replica or "", has_ended=has_ended)
        return output.lines(tail=tail, follow=follow)

    def exec(
        self,
        job: JobName,
        argv: Sequence[str],
        *,
        replica: str | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command beside a replica of a running job, and return its exit status and what it printed.

        It begins where the program began, or in its container, with the job's environment and rights, and ends with the
        replica.

        Args:
            job: which one.
            argv: the command and its arguments; no shell reads them.
            replica: such as worker-1; by default the launcher, or the first worker.
            stdin: what the command reads.
            timeout_s: after which it is ended; None = never.

        Raises:
            WrongState: the job, or the replica, does not run.
            NotFound: there is no such job or replica.
            WaitTimeout: it has not ended within `timeout_s`.
            InvalidInput: it printed more than 64 MiB.
        """
        start, streams = start_of(argv, has_input=bool(stdin), terminal=None), MemoryStreams(stdin)
        call = HttpCall(path=f"{_path(job)}/exec", params={"replica": replica} if replica else None)
        with self.http.upgraded(call, protocol=PROTOCOL) as connected:
            end = carry(connected, start, streams, timeout_s=timeout_s)
        return streams.result(end)

    def cancel(self, job: JobName, *, reason: str = "", now: bool = False) -> JobView:
        """Cancel a job and return it; a job that has ended stays as it is. `now` kills its processes, without time for
        a checkpoint: for admins, others get NotAllowed.
        """
        query = {**({"reason": reason} if reason else {}), **({"now": "true"} if now else {})}
        return decode(self.http.ask_repeatedly(HttpCall(method="DELETE", path=_path(job), params=query)).body, JobView)

    def halt(self, job: JobName, *, reason: str = "") -> JobView:
        """Halt a job and return it: it gives its GPUs back, and gets none until it is resumed."""
        query = {"reason": reason} if reason else None
        call = HttpCall(method="POST", path=f"{_path(job)}/halt", params=query)
        return decode(self.http.ask_repeatedly(call).body, JobView)

    def resume(self, job: JobName) -> JobView:
        """Let a halted job have GPUs again, and return it."""
        call = HttpCall(method="POST", path=f"{_path(job)}/resume")
        return decode(self.http.ask_repeatedly(call).body, JobView)

    def rerun(self, job: JobName, *, goes_on: bool = False) -> SubmissionView:
        """Submit the manifest of a job that has ended again, as the next run of its name; where it `goes_on`, in the
        folder of that job, with its program as it is now.
        """
        headers = {"Idempotency-Key": SystemClock().new_id()}
        query = goes_on_query(self.http, _path(job)) if goes_on else None
        call = HttpCall(method="POST", path=f"{_path(job)}/rerun", params=query, headers=headers)
        return decode(self.http.ask_repeatedly(call).body, SubmissionView)

    def scale(self, job: JobName, **changes: Unpack[JobPatchFields]) -> JobView:
        """Change the replicas, the priority or the epochs of a live job, and return it; the rest stays."""
        return decode(self.http.patch(_path(job), {**changes})[1].body, JobView)

    def events(
        self, *, job: JobName | None = None, types: Sequence[str] = (), after: int | None = None
    ) -> Generator[EventView, None, None]:
        """Yield what happens, for ever: each event once and in order, also where the connection is cut.

        Args:
            job: only events about this job.
            types: only events of these types, such as job.completed.
            after: begin behind this position, 0 = the beginning of the log; by default now.
        """
        begins = _service(self.http).position if after is None else after
        params = _given({"job": None if job is None else _name(job), "type": [*types]})
        for message in self.http.follow_events(after=begins, params=params):
            yield decode(message.data, EventView)

    def settings(self, pool: str | None = None) -> Settings:
        """Return how a pool is decided; by default the only one."""
        return decode(self.http.ask_repeatedly(HttpCall(path=_settings_path(self.http, pool))).body, Settings)

    def change_settings(self, /, pool: str | None = None, **changes: SettingValue) -> Settings:
        """Change how a pool is decided, by the fields of `Settings`, and return it; the rest stays."""
        return decode(self.http.patch(_settings_path(self.http, pool), {**changes})[1].body, Settings)

    def whoami(self) -> CallerView:
        """Return whom the server takes you for."""
        return decode(self.http.ask_repeatedly(HttpCall(path="/whoami")).body, CallerView)


def client_over(http: HttpClient) -> Client:
    """Return a client that asks by these requests."""
    made = Client.__new__(Client)
    made.http = http
    return made


def _service(http: HttpClient) -> ServiceView:
    return decode(http.ask_repeatedly(HttpCall(path="")).body, ServiceView)


def _settings_path(http: HttpClient, pool: str | None) -> str:
    if pool is None:
        pools = _service(http).pools
        if len(pools) != 1:
            raise InvalidInput(f"which pool? there are {', '.join(pools)}: name one of them")
        pool = pools[0]
    return resource_path("pools", pool, "settings")


def _name(job: JobName) -> str:
    """Return what names a job; one that the server returned is meant itself, also where a newer job has its name."""
    return job if isinstance(job, str) else f"@{job.job_id}"


def _path(job: JobName) -> str:
    if not (name := _name(job)):
        raise InvalidInput("which job? its id or name is empty")
    return resource_path("jobs", name)


def _given(filters: Mapping[str, Any]) -> dict[str, str | int | list[str]]:
    """Return the filters that are given, as parameters of a query."""
    given = {name: value for name, value in filters.items() if value}
    return {name: value if isinstance(value, str | int) else [*value] for name, value in given.items()}
