"""Arrays of jobs: one look at all tasks, and one request that cancels them. A task by itself is a job like any other.

Rule: the tasks are canceled in one append, all or none.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import WRITERS, Operation, Response, Routes
from voda.api.presenters.jobs import array_of
from voda.api.requests import json_response, printable_reason, query_of
from voda.application import lookup
from voda.application.change_job import cancel_array
from voda.application.journal import Journal
from voda.auth.callers import Caller, require_owner
from voda.wire.jobs import ArrayView

_PATH: Final = "/api/v1/arrays/{array}"
_ARRAY: Final = {"array": "Name of the array: your own, else the one submitted last; or OWNER/NAME, or @ID."}


class DeleteArrayQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: Annotated[str, Meta(max_length=500, description="Told to whoever looks at the jobs later.")] = ""
    now: Annotated[bool, Meta(description="Kill their processes, without time for a checkpoint; for admins.")] = False


@dataclass
class ArrayRoutes(Routes):
    """The operations on arrays of jobs."""

    tag = "Jobs"

    journal: Journal

    @Operation(
        "GET",
        _PATH,
        description="GET /api/v1/jobs?array=NAME lists its tasks.",
        path_parameters=_ARRAY,
        answers=(Response(of=ArrayView),),
        problems=(404,),
    )
    async def get_array(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get an array of jobs."""
        return json_response(array_of(lookup.array_of(self.journal.view, request.match_info["array"], caller)))

    @Operation(
        "DELETE",
        _PATH,
        description="The workers of all live tasks are stopped; what they wrote stays. Tasks that have ended stay as"
        " they are.",
        roles=WRITERS,
        query=DeleteArrayQuery,
        path_parameters=_ARRAY,
        answers=(Response(status=202, of=ArrayView),),
        problems=(404,),
    )
    async def delete_array(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Cancel all tasks of an array."""
        query = query_of(request, DeleteArrayQuery)
        tasks = lookup.array_of(self.journal.view, request.match_info["array"], caller)
        for task in tasks:
            require_owner(task.spec, caller, what="delete it")
        reason = printable_reason(query.reason)
        await cancel_array(self.journal, tasks, caller, reason=reason, is_kill=query.now)
        return json_response(array_of(tasks), status=202)
