"""The folders of jobs on one machine: what they take, and deleting those of ended jobs.

Rule: a folder may hold secrets, so it is for the job's owner and admins.
"""

from dataclasses import dataclass
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import WRITERS, Operation, Response, Routes
from voda.api.requests import json_response, query_of
from voda.api.routes.jobs import JOB_ID, JOB_PATH
from voda.application.folder_retention import RetentionRule, expired
from voda.application.job_folders import FolderKeeper
from voda.application.journal import Journal
from voda.application.lookup import spec_of
from voda.auth.callers import Caller, require_owner
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec
from voda.untrusted_trees import TreeSize
from voda.wire.base import view_of
from voda.wire.housekeeping import JobFolderView, KeptFolderList, KeptFolderView

_NONE_KEPT = (
    "voda keeps no folders of jobs on this cluster: on Kubernetes a job's output goes with its pods, and what it writes"
    " lies on its own volumes"
)


class FoldersQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which folders, and which of them are to be deleted; without limits, by the settings of their pools."""

    user: Annotated[str, Meta(description="Only those of this user's jobs; users see their own alone.")] = ""
    older_than_s: (
        Annotated[float, Meta(description="Delete those of jobs that ended longer ago than this.", ge=0, le=2**40)]
        | None
    ) = None
    keep_bytes: (
        Annotated[
            int,
            Meta(
                description="Delete, from who takes the most, until the rest takes no more than this.",
                ge=0,
                le=2**53,
            ),
        ]
        | None
    ) = None


@dataclass
class FolderRoutes(Routes):
    """The operations on folders."""

    tag = "Folders"

    journal: Journal
    folders: FolderKeeper | None

    @Operation(
        "GET",
        "/api/v1/folders",
        description="Those of ended jobs, and which of them would be deleted; this deletes nothing.",
        roles=WRITERS,
        query=FoldersQuery,
        answers=[Response(of=KeptFolderList)],
    )
    async def list_folders(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """List the folders of ended jobs."""
        query = query_of(request, FoldersQuery)
        if (keeper := self.folders) is None:
            return json_response(KeptFolderList(items=(), total_bytes=0, goes_bytes=0, note=_NONE_KEPT))
        user = query.user if caller.role == "admin" else caller.user
        ended = await keeper.ended_folders()
        kept = [folder for folder in ended if user in ("", folder.user)]
        if query.user and query.user != user:
            kept = []
        now, goes = self.journal.clock.now(), dict[str, str]()
        if query.older_than_s is None and query.keep_bytes is None:
            for pool in {folder.pool for folder in kept}:
                in_pool = [folder for folder in ended if folder.pool == pool]
                goes |= {one.job_id: cause for one, cause in expired(in_pool, keeper.rule(pool), now)}
        else:
            goes = {one.job_id: cause for one, cause in expired(kept, _rule(query), now)}
        items = tuple(view_of(KeptFolderView, one, goes=goes.get(one.job_id, "")) for one in kept)
        return json_response(
            KeptFolderList(
                items=items,
                total_bytes=sum(one.size_bytes for one in items),
                goes_bytes=sum(one.size_bytes for one in items if one.goes),
            )
        )

    @Operation(
        "GET",
        f"{JOB_PATH}/folder",
        roles=WRITERS,
        path_parameters=JOB_ID,
        answers=[Response(of=JobFolderView)],
        problems=[404],
    )
    async def get_folder(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get what a job's folder takes, or when it was deleted."""
        spec, keeper = await self._keeper(request, caller, "look at its folder")
        tree, cut = await keeper.look(spec.job_id)
        return json_response(await self._folder(keeper, spec, tree, tuple(cut)))

    @Operation(
        "DELETE",
        f"{JOB_PATH}/folder",
        description="Of a job that has ended: its output and all that it left there. The log keeps the rest of it. The"
        " answer says what it took; a large folder may still be emptied after it.",
        roles=WRITERS,
        path_parameters=JOB_ID,
        answers=[Response(of=JobFolderView)],
        problems=[404, 409],
    )
    async def delete_folder(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Delete the folder of an ended job."""
        spec, keeper = await self._keeper(request, caller, "delete its folder")
        size_bytes = await keeper.delete(spec.job_id, actor=caller.user)
        return json_response(await self._folder(keeper, spec, TreeSize(size_bytes=size_bytes), ()))

    async def _keeper(self, request: web.Request, caller: Caller, what: str) -> tuple[JobSpec, FolderKeeper]:
        spec = await spec_of(self.journal, request.match_info["job_id"], caller)
        require_owner(spec, caller, what=what)
        if (keeper := self.folders) is None:
            raise NotFound(_NONE_KEPT)
        return spec, keeper

    async def _folder(self, keeper: FolderKeeper, spec: JobSpec, tree: TreeSize, cut: tuple[str, ...]) -> JobFolderView:
        record = self.journal.view.job_registry.job(spec.job_id)
        deletion = await keeper.deletion(spec.job_id)
        return view_of(
            JobFolderView,
            tree,
            spec,
            finished_at=record.finished_at if record is not None else None,
            path="" if deletion else str(keeper.folders.path(spec.job_id)),
            output_limit_bytes=keeper.output_bytes(spec.pool),
            cut_replicas=cut,
            deleted_at=deletion.at if deletion else None,
            deleted_by=deletion.by if deletion else "",
        )


def _rule(query: FoldersQuery) -> RetentionRule:
    # As an age of 0 means no limit in settings, and every job here: the least that is more than none.
    keep_s = 0.0 if query.older_than_s is None else max(query.older_than_s, 1e-9)
    keep_bytes = 0 if query.keep_bytes is None else max(query.keep_bytes, 1)
    return RetentionRule(keep_s=keep_s, keep_bytes=keep_bytes, spared_s=0.0)
