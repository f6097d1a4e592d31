"""What another policy would have decided, as it travels over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from voda.wire.base import Instant, View


class WhatIfRequest(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which policy decides instead, and from when on."""

    at: Annotated[
        str, Meta(description="A position, an RFC 3339 time, +1h30m after the first event, -10m before the last one.")
    ]
    pool: str
    policy: str
    placer: Annotated[str, Meta(description="Empty: as recorded.")] = ""
    fair_share: Annotated[str, Meta(description="users, or weights such as ann=2,bob=0.5; empty: as recorded.")] = ""


class RunFiguresView(View, frozen=True, kw_only=True):
    """One run over the jobs compared; all are 0 when there are none."""

    avg_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    makespan_s: Annotated[float, Meta(description="From that moment, or the first submission, to the last end.")]
    avg_queueing_s: float
    restarts_per_job: float
    utilisation: Annotated[float, Meta(description="GPU time held / GPU time there was; 0 to 1.")]


class JobShiftView(View, frozen=True, kw_only=True):
    """One job in the three runs."""

    job_id: str
    recorded_jct_s: float
    resimulated_jct_s: float
    what_if_jct_s: float


class SeriesView(View, frozen=True, kw_only=True):
    """A run over time, by stretches of equal length; means."""

    since: Instant
    until: Instant
    gpus_in_use: tuple[float, ...]
    capacity: tuple[float, ...]
    running: tuple[float, ...]
    waiting: tuple[float, ...]


class ComparisonView(View, frozen=True, kw_only=True):
    """The recorded run, the recorded policy simulated again, and the other policy.

    The first two differ by the model's error, the last two by the policy.
    """

    position: Annotated[int, Meta(description="From which on the other policy decides.")]
    at: Instant
    policy: str
    placer: str
    jobs: Annotated[int, Meta(description="Compared: open at that moment, and completed in all three runs.")]
    left_out: Annotated[int, Meta(description="Open at that moment, but not completed in all three.")]
    recorded: RunFiguresView
    resimulated: RunFiguresView
    what_if: RunFiguresView
    winners: Annotated[tuple[JobShiftView, ...], Meta(description="Those that gain most, most first.")]
    losers: tuple[JobShiftView, ...]


class WhatIfView(View, frozen=True, kw_only=True):
    """A what-if, and how far it is."""

    what_if_id: str
    position: int
    pool: str
    policy: str
    placer: str
    fair_share: str
    state: Literal["waiting", "running", "done", "failed"]
    progress: Annotated[float, Meta(description="0 to 1, by the steps of the work.")]
    step: str
    error: str
    comparison: ComparisonView | None = None
    recorded: Annotated[SeriesView | None, Meta(description="The recorded run over time.")] = None
    what_if: Annotated[SeriesView | None, Meta(description="The other policy's.")] = None
