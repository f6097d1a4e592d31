"""Why a job has what it has, as it travels over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta

from voda.domain.job import Phase
from voda.domain.reasons.outcomes import JobReason, Reason
from voda.domain.state import Source
from voda.wire.base import Instant, UnknownReason, View
from voda.wire.jobs import GpuShareView


class DecisionView(View, frozen=True, kw_only=True):
    """One plan that was about the job."""

    position: int
    decided_at: Instant
    plan: int
    policy: str
    before: Annotated[tuple[str, ...], Meta(description="Nodes by worker index, in the plan before; empty = none.")]
    after: tuple[str, ...]
    reason: Annotated[Reason | UnknownReason | None, Meta(description="None: the job had ended.")]
    message: Annotated[str, Meta(description="The reason in words.")]
    cause: Annotated[str, Meta(description="Type of the event that made the decision due.")]
    cause_position: int | None = None


class ShortageView(View, frozen=True, kw_only=True):
    """What a waiting job needs (minimum, wish), and what the next plan would leave to nobody, in GPUs."""

    needs_gpus: int
    wishes_gpus: int
    capacity_gpus: Annotated[int, Meta(description="That plans may hand out.")]
    shared_gpus: Annotated[int, Meta(description="Of which somebody has a part; not among the others.")] = 0
    free_gpus: int
    largest_free_gpus: Annotated[int, Meta(description="Most of those on one node.")]
    jobs_served: Annotated[int, Meta(description="Among which the next plan shares the others.")]


class EndedJobView(View, frozen=True, kw_only=True):
    """What became of a job that ended. queueing_s + running_s = jct_s."""

    outcome: Literal["completed", "failed", "canceled"]
    submitted_at: Instant
    started_at: Annotated[Instant | None, Meta(description="First start; None: it never had a worker.")]
    finished_at: Instant
    jct_s: Annotated[float, Meta(description="Submission to end.")]
    queueing_s: float
    running_s: float
    gpu_s: float
    starts: int
    resizes: int
    migrations: int
    workers_moved: int
    was_spanning: bool


class BeliefView(View, frozen=True, kw_only=True):
    """One figure that is believed of a job."""

    value: Annotated[float | None, Meta(description="None: nothing is known.")]
    known_by: Annotated[
        Source,
        Meta(description="measured: by its own reports; category: by its category; declared: by its user."),
    ]
    spread: Annotated[
        float | None,
        Meta(description="A factor: two of three true values lie within it of the value, either way; None: unknown."),
    ]


class EstimateView(View, frozen=True, kw_only=True):
    """What policies believe of a live job."""

    remaining_s: Annotated[BeliefView, Meta(description="Seconds left on one replica.")]
    epochs_known_by: Annotated[Source, Meta(description="How the number of its epochs is known.")]
    speedup: Annotated[BeliefView, Meta(description="Of the replicas that it asks for, over one.")]
    resize_cost_s: Annotated[BeliefView, Meta(description="What a start, resize or migration costs.")]
    doubt: Annotated[str, Meta(description="Why its last report is not believed; empty: it is.")] = ""


class ExplanationView(View, frozen=True, kw_only=True):
    """Why a job has what it has, or waits, at one moment; of a job that ended, its story."""

    job_id: str
    pool: str
    position: int
    at: Instant
    phase: Phase
    is_preempted: Annotated[bool, Meta(description="Whether it waits because a plan gave its GPUs to others.")]
    is_halted: Annotated[bool, Meta(description="Whether it gets no workers until it is resumed.")] = False
    is_canceling: Annotated[bool, Meta(description="Whether it is live and its cancellation was requested.")] = False
    interruption: Annotated[str, Meta(description="As of the job: why its last workers left.")] = ""
    since: Annotated[Instant, Meta(description="Instant from which it has been in this phase.")]
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    sizes: Annotated[str, Meta(description="As of the job: all at which it runs.")] = ""
    gpus_per_replica: int
    policy: str
    placer: str
    nodes: Annotated[tuple[str, ...], Meta(description="Of its workers as observed, by index.")]
    planned: Annotated[tuple[str, ...], Meta(description="By the plan in force.")]
    next: Annotated[tuple[str, ...], Meta(description="By the plan that would be decided now.")]
    reason: Annotated[
        JobReason | UnknownReason | None,
        Meta(description="That of the job: by the plan in force; once it has ended, why it failed or was canceled."),
    ]
    message: Annotated[str, Meta(description="The reason in words; empty: there is none.")]
    share: Annotated[GpuShareView | None, Meta(description="As of the job: the part of a GPU that it asks for.")] = None
    gpu: Annotated[str, Meta(description="Which part of which GPU it has now, and beside whom; empty: none.")] = ""
    obstacle: Annotated[str, Meta(description="What keeps it from running as planned; empty: nothing.")]
    retry_at: Annotated[
        Instant | None, Meta(description="When the cluster tries that again, at the latest; None: not known.")
    ] = None
    next_reason: Annotated[
        Reason | UnknownReason | None, Meta(description="By the plan that would be decided now.")
    ] = None
    next_message: Annotated[str, Meta(description="That in words.")] = ""
    program_failures: Annotated[int, Meta(description="As of the job, now: how often its program failed.")] = 0
    last_failure: str = ""
    next_try: Annotated[int, Meta(description="As of the job, now: the try that follows, or is under way.")] = 0
    most_tries: int = 0
    next_try_at: Instant | None = None
    queue_level: int
    queue_position: Annotated[
        int, Meta(description="By priority, queue and submission: 1 = first of those that wait; 0 = does not wait.")
    ]
    queue_length: int
    shortage: ShortageView | None
    suggestions: tuple[str, ...]
    expected_start_at: Instant | None
    estimate: Annotated[EstimateView | None, Meta(description="None: it has ended.")] = None
    decisions: Annotated[tuple[DecisionView, ...], Meta(description="Oldest first.")]
    ended: EndedJobView | None
