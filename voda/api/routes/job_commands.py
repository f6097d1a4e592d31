"""Commands that users run beside the replicas of their jobs.

Rules: for the job's owner and admins; who ran what beside which replica, and how it ended, is said in the server's own
log, by the first word alone, since the others may hold secrets.
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from aiohttp import hdrs, web
from msgspec import Meta, Struct

from voda.api.admission import SHARES, CallerLimits
from voda.api.operation import SHUTTING_DOWN, WRITERS, Operation, Response, Routes
from voda.api.requests import query_of
from voda.api.routes.job_reports import named_replica
from voda.api.routes.jobs import JOB_ID, JOB_PATH
from voda.api.streams.command_session import CommandSession, command_socket
from voda.application.journal import Journal
from voda.application.lookup import job_of
from voda.auth.callers import Caller, require_owner
from voda.cluster.port import CommandEnd, CommandRequest, Outputs, RemoteCommands
from voda.domain.errors import NotFound, VodaError, WrongState
from voda.projections.jobs.record import JobRecord

AUDIT: Final = logging.getLogger("voda.audit")
"""Shown whatever the level of the rest."""


class ExecQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Beside which replica."""

    replica: Annotated[
        str, Meta(description="Its name, role or index; by default the most telling one.", max_length=253)
    ] = ""


@dataclass
class CommandRoutes(Routes):
    """The operation on commands."""

    tag = "Jobs"

    journal: Journal
    limits: CallerLimits
    outputs: Outputs | None
    commands: RemoteCommands | None

    @Operation(
        "GET",
        f"{JOB_PATH}/exec",
        description="A WebSocket of the protocol voda.exec.v1, which docs/api.md describes. The command has"
        " folder, environment and rights of the replica, and ends with it and the connection.",
        roles=WRITERS,
        path_parameters=JOB_ID,
        query=ExecQuery,
        answers=[Response(status=101, media_type="", description="It goes on as a WebSocket.")],
        problems=[404, 409, 426],
    )
    async def run_command(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Run a command beside a replica of a running job."""
        query, record = query_of(request, ExecQuery), job_of(self.journal.view, request.match_info["job_id"], caller)
        require_owner(record.spec, caller, what="run commands beside it")
        commands = await self._commands(record, query.replica)
        replica = named_replica(await _running(commands, record), query.replica)
        if replica is None:
            known = ", ".join((await commands.replicas(record.spec.job_id))[:20])
            raise NotFound(f"job {record.spec.job_id} runs no replica {query.replica[:80]!r}; there is: {known}")
        opened = command_socket()
        if request.method != hdrs.METH_GET or not opened.can_prepare(request):
            raise web.HTTPUpgradeRequired
        with request.app[SHARES].stream(caller):
            await opened.prepare(request)
            session = CommandSession(opened, self.limits, request.app[SHUTTING_DOWN], partial(_abort, request))
            ended: CommandEnd | str | None
            try:
                ended = await self._run(session, await session.request(), record.spec.job_id, replica, caller)
            except VodaError as error:
                ended = str(error)
            await session.end(ended)
        return opened

    async def _run(
        self, session: CommandSession, asked: CommandRequest, job_id: str, replica: str, caller: Caller
    ) -> CommandEnd | str | None:
        """Run a command and return how it ended, once nothing of it is held."""
        who = f"user={caller.user!r} role={caller.role} by={caller.found_by!r}"
        what = f"job_id={job_id} replica={replica} {who} command={asked.argv[0]!r:.80}"
        AUDIT.info("exec %s", what)
        assert self.commands is not None, "checked before"
        began_at, status = self.journal.clock.now(), None
        try:
            async with self.commands.run(job_id, replica, asked) as command:
                ended = await session.carry(command)
            status = ended.status if isinstance(ended, CommandEnd) else None
            return ended
        finally:
            took_s = self.journal.clock.now() - began_at
            AUDIT.info("exec ended %s status=%s seconds=%.1f", what, status, took_s)

    async def _commands(self, record: JobRecord, replica: str) -> RemoteCommands:
        if self.commands is None:
            outputs, spec = self.outputs, record.spec
            pods = await outputs.replicas(spec.job_id) if outputs is not None else ()
            pod = named_replica(pods, replica) or "POD"
            raise NotFound(
                f"voda runs no commands on the cluster of job {spec.job_id}, but kubectl does: kubectl exec"
                f" -n {spec.namespace} {pod} -- COMMAND"
            )
        if not record.is_live:
            raise WrongState(
                f"job {record.spec.job_id} is {record.phase.value}: commands run beside replicas that run; logs shows"
                " what it printed, rerun runs it again"
            )
        return self.commands


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _running(commands: RemoteCommands, record: JobRecord) -> list[str]:
    if found := [*await commands.replicas(record.spec.job_id)]:
        return found
    raise WrongState(
        f"job {record.spec.job_id} is {record.phase.value}, and no replica of it runs at this moment; wait"
        f" {record.spec.job_id} --for running waits for it"
    )
