"""Usage, and the folders of jobs, as they travel over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from voda.projections.usage import UsageKey
from voda.wire.base import Instant, View


class UsageRowView(View, frozen=True, kw_only=True):
    """The usage of one user, job, pool or day (UTC), or of all."""

    key: Annotated[str, Meta(description="The user, job, pool or day (2026-01-31).")]
    jobs: Annotated[int, Meta(description="That ran, were submitted or ended in the window.")]
    submitted: int
    started: Annotated[int, Meta(description="For the first time.")]
    completed: int
    failed: int
    canceled: int
    gpu_hours: Annotated[float, Meta(description="Held by workers within the window.")]
    wall_hours: Annotated[float, Meta(description="With at least one worker, summed over the jobs.")]
    wait_mean_s: Annotated[
        float | None, Meta(description="From submission to the first worker, of the jobs that started.")
    ]
    wait_p95_s: float | None
    restarts: Annotated[int, Meta(description="Starts after the first.")]
    resizes: Annotated[int, Meta(description="Changes from one planned size to another.")]


class UsageView(View, frozen=True, kw_only=True):
    """The usage in a window of time: since <= t < until."""

    since: Instant
    until: Instant
    by: UsageKey
    user: Annotated[str, Meta(description="Only the jobs of this user; empty: of all.")]
    rows: tuple[UsageRowView, ...]
    total: UsageRowView
    left_out: Annotated[
        int, Meta(description="Rows beyond the first 10,000, which are not shown; the total counts them.")
    ] = 0


class JobFolderView(View, frozen=True, kw_only=True):
    """The folder of one job on the server's machine: checkpoints, output and what else the job wrote."""

    job_id: str
    user: str
    pool: str
    finished_at: Instant | None
    path: Annotated[str, Meta(description="On the server's machine; empty once it is deleted.")]
    size_bytes: Annotated[int, Meta(description="On the disk: what deleting it would free.")]
    files: int
    is_complete: Annotated[bool, Meta(description="False: not all of it could be looked at, there is more.")]
    output_limit_bytes: Annotated[int, Meta(description="Of the output of all its replicas together.")]
    cut_replicas: Annotated[tuple[str, ...], Meta(description="Their output outgrew its share.")]
    deleted_at: Annotated[Instant | None, Meta(description="When voda deleted it; None: it is there.")]
    deleted_by: Annotated[str, Meta(description="Such as `retention (30 days)` or `ada`.")]


class KeptFolderView(View, frozen=True, kw_only=True):
    """The folder of an ended job, and whether it is to be deleted."""

    job_id: str
    user: str
    pool: str
    finished_at: Instant
    size_bytes: int
    exceeds: Annotated[
        bool, Meta(description="Whether it has more files than are counted (ten million), and takes more than this.")
    ] = False
    goes: Annotated[Literal["", "age", "size"], Meta(description="Why it is to be deleted; empty: it stays.")]


class KeptFolderList(View, frozen=True, kw_only=True):
    """The folders of ended jobs, those that ended first first."""

    items: tuple[KeptFolderView, ...]
    total_bytes: int
    goes_bytes: Annotated[int, Meta(description="Of those that are to be deleted.")]
    note: Annotated[str, Meta(description="Why there are none, where this cluster keeps none.")] = ""
