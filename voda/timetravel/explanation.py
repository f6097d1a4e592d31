"""Why a job has its workers, or why it waits: past decisions on it, the decision of this moment, and suggestions.

Rule: pure; the reason is that of the plan in force, as everywhere; what a decision of that moment would change comes
with its own.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import GpuRequest
from voda.domain.job import Job, JobSpec, Phase
from voda.domain.plan import Plan
from voda.domain.reasons.outcomes import Canceling, Halted, HasPart, JobReason, Reason
from voda.domain.shares import lacking_memory, largest_gpu_mib
from voda.domain.state import ClusterState, Estimate
from voda.events.text.cells import parts_text
from voda.planner.eligibility import held_jobs
from voda.planner.registries import Decide
from voda.planner.sharing import part_of
from voda.policies import Policy, gives_as_requested
from voda.projections.history import FinishedJob
from voda.text import counted, number_are

CAUSE = "explain"
_MOST_PAYERS = 3
"""Named in one suggestion."""


class JobDecision(Struct, frozen=True, kw_only=True):
    """One plan that was about the job."""

    position: int
    at: float
    plan: int
    policy: str
    before: tuple[str, ...]
    """Nodes by worker index, in the plan before; empty = none."""
    after: tuple[str, ...]
    reason: Reason | None
    """None: the job had ended."""
    cause: str
    """Type of the event that made the decision due."""
    cause_position: int | None = None
    """Of the last such event that the decision had seen."""


class GpuShortage(Struct, frozen=True, kw_only=True):
    """The GPUs that a waiting job needs, and those of the pool."""

    needs_gpus: int
    """For its minimum."""
    wishes_gpus: int
    """For its request."""
    capacity_gpus: int
    """That plans may hand out: without those that are shared."""
    shared_gpus: int = 0
    """Of which somebody has a part."""
    free_gpus: int
    """Left free by the next plan."""
    largest_free_gpus: int
    """Most of those on one node."""
    jobs_served: int
    """Jobs to which the next plan gives the others."""


class JobExplanation(Struct, frozen=True, kw_only=True):
    """One job at one moment."""

    job_id: str
    pool: str
    position: int
    at: float
    phase: Phase
    is_preempted: bool = False
    """Whether it waits because a plan gave its GPUs to others."""
    is_halted: bool = False
    is_canceling: bool = False
    interruption: str = ""
    """Why its last workers left, as Job has it."""
    since: float
    """Instant from which it has been in this phase."""
    spec: JobSpec
    policy: str
    placer: str
    nodes: tuple[str, ...] = ()
    """Of its workers as observed, by index."""
    planned: tuple[str, ...] = ()
    """By the plan in force."""
    next: tuple[str, ...] = ()
    """By the plan that would be decided now."""
    reason: JobReason | None = None
    """Given by the plan in force; of a job that is halted or has ended, why it is or has."""
    gpu: HasPart | None = None
    """Which part of which GPU it has, and beside whom; None: none, or whole ones."""
    obstacle: str = ""
    """What keeps it from running as planned, as far as the log says; empty: nothing."""
    retry_at: float | None = None
    """When the cluster tries that again, at the latest; at present only. None: not known."""
    next_reason: Reason | None = None
    """Given by the plan that would be decided now."""
    program_failures: int = 0
    last_failure: str = ""
    next_try: int = 0
    most_tries: int = 0
    next_try_at: float | None = None
    """As JobRecord has them; at present only."""
    queue_level: int = 0
    queue_position: int = 0
    """Its place among the jobs that the next plan lets wait, by priority, queue and submission; 0 = does not wait."""
    queue_length: int = 0
    shortage: GpuShortage | None = None
    suggestions: tuple[str, ...] = ()
    expected_start_at: float | None = None
    estimate: Estimate | None = None
    """What is believed of it; None: it has ended."""
    doubt: str = ""
    """Why its last report is not believed; empty: it is."""
    decisions: tuple[JobDecision, ...] = ()
    """Oldest first."""
    ended: FinishedJob | None = None


def explain_live(
    state: ClusterState, job_id: str, at: float, *, policies: Mapping[str, Policy], decide: Decide
) -> JobExplanation:
    """Explain a job that is live in this state at an instant `at`, seconds since the epoch.

    `policies` are those that may be suggested; the one of the state's settings must be among them.
    """
    job = state.jobs[job_id]
    plan = decide(state, policies[state.settings.policy], at)
    waits = job_id not in plan.placement
    held = held_jobs(state, at)
    queue = _queue(state, plan, held.keys())
    return JobExplanation(
        job_id=job_id,
        pool=state.pool,
        position=state.position,
        at=at,
        phase=job.phase,
        is_preempted=job.is_preempted,
        is_halted=job.is_halted,
        is_canceling=job.is_canceling,
        interruption=job.interruption,
        since=_since(job),
        spec=job.spec,
        policy=state.settings.policy,
        placer=state.settings.placer,
        nodes=tuple(job.workers[index] for index in sorted(job.workers)),
        planned=state.plan.placement.get(job_id, ()),
        next=plan.placement.get(job_id, ()),
        reason=_reason(state, job),
        gpu=part_of(state.shares, job_id) if job.spec.share is not None else None,
        next_reason=plan.reasons.get(job_id),
        queue_level=job.queue_level,
        queue_position=queue.index(job_id) + 1 if job_id in queue else 0,
        queue_length=len(queue),
        estimate=state.estimates.get(job_id),
        shortage=shortage(state, job, plan) if waits and job_id not in held and job.spec.gpus_per_replica else None,
        suggestions=tuple(_suggestions(state, job, at, policies=policies, decide=decide))
        if waits and (job_id not in held or job.is_halted)
        else tuple(_binding_size(state, job.spec.as_planned, plan, policies[state.settings.policy])),
    )


def explain_ended(
    ended: FinishedJob, spec: JobSpec, *, position: int, at: float, decisions: Sequence[JobDecision]
) -> JobExplanation:
    """Explain a job that has ended by its record and its decisions."""
    return JobExplanation(
        job_id=ended.job_id,
        pool=ended.pool,
        position=position,
        at=at,
        phase=Phase(ended.outcome.capitalize()),
        since=ended.finished_at,
        spec=spec,
        policy=decisions[-1].policy if decisions else "",
        placer="",
        decisions=tuple(decisions),
        ended=ended,
    )


def shortage(state: ClusterState, job: Job, plan: Plan) -> GpuShortage:
    """Return what the job needs, and what the plan leaves free."""
    free = state.free_gpus(plan.placement)
    gpus = job.spec.gpus_per_replica
    return GpuShortage(
        needs_gpus=job.spec.as_planned.min_replicas * gpus,
        wishes_gpus=job.spec.requested * gpus,
        capacity_gpus=state.capacity_gpus,
        shared_gpus=state.shared_gpus,
        free_gpus=sum(free.values()),
        largest_free_gpus=max(free.values(), default=0),
        jobs_served=sum(1 for job_id in plan.placement if state.jobs[job_id].spec.gpus_per_replica),
    )


def _reason(state: ClusterState, job: Job) -> JobReason | None:
    if job.is_canceling:
        return Canceling()
    if job.halt is not None:
        return Halted(by=job.halt.by, text=job.halt.text)
    return state.plan.reasons.get(job.spec.job_id)


def _since(job: Job) -> float:
    if job.phase is Phase.RUNNING and job.last_started_at is not None:
        return job.last_started_at
    return job.submitted_at if job.last_halted_at is None else job.last_halted_at


def _queue(state: ClusterState, plan: Plan, held: Set[str]) -> Sequence[str]:
    """Return the jobs that the plan lets wait and that are not held, in the order in which people count."""
    waiting = [
        job
        for job_id, job in state.jobs.items()
        if job_id in plan.reasons and job_id not in plan.placement and job_id not in held
    ]
    waiting.sort(key=lambda job: (-job.spec.priority, job.queue_level, job.submitted_at, job.spec.job_id))
    return [job.spec.job_id for job in waiting]


def _suggestions(
    state: ClusterState, job: Job, at: float, *, policies: Mapping[str, Policy], decide: Decide
) -> Sequence[str]:
    if job.is_canceling:
        return []
    if job.is_halted:
        return [f"waits until it is resumed: voda resume {job.spec.job_id}"]
    if job.spec.share is not None:
        # Policies have no say; its reason names what is left.
        return list(filter(None, [_never_fits_gpu(state, job.spec.share)]))
    suggestions: list[str] = []
    policy, spec = policies[state.settings.policy], job.spec.as_planned
    if (never := _never_fits(state, spec)) is not None:
        suggestions.append(never)
    if size := _largest_that_starts(state, job.spec, at, policy=policy, decide=decide):
        field = "min" if size < job.spec.min_replicas else "requested"
        suggestions.append(f"would start at once with {field} {size}")
    others = [name for name in policies if name != policy.name]
    costs: dict[str, list[str]] = {}
    for name in others:
        if (cost := _cost(state, job.spec, at, policy=policies[name], decide=decide)) is not None:
            costs.setdefault(cost, []).append(name)
    return [*suggestions, *(f"would start at once under {', '.join(names)}{cost}" for cost, names in costs.items())]


def _cost(state: ClusterState, spec: JobSpec, at: float, *, policy: Policy, decide: Decide) -> str | None:
    """Return who would pay for the job's start under a policy, as the rest of a sentence; None if it does not start."""
    now, then = state.plan.placement, decide(state, policy, at).placement
    if spec.job_id not in then:
        return None
    paid = {job_id: (len(nodes), len(then.get(job_id, ()))) for job_id, nodes in now.items()}
    payers = [
        f"{job_id} ({had} -> {gets})" if gets else f"{job_id} (halted)"
        for job_id, (had, gets) in sorted(paid.items())
        if gets < had and job_id in state.jobs
    ]
    more = f" and {counted(len(payers) - _MOST_PAYERS, 'other job')}" if len(payers) > _MOST_PAYERS else ""
    return f", at the cost of {', '.join(payers[:_MOST_PAYERS])}{more}" if payers else ", at nobody's cost"


def _never_fits_gpu(state: ClusterState, request: GpuRequest) -> str:
    """Return why a share cannot start on this cluster, however empty it is; empty where it can."""
    lacking = lacking_memory(largest_gpu_mib(state.nodes.values()), request)
    return f"cannot start on this cluster even when it is empty: {parts_text(lacking)}" if lacking else ""


def _never_fits(state: ClusterState, spec: JobSpec) -> str | None:
    """Return why the job cannot start on this cluster, however empty it is; None where it can."""
    if not spec.needs_gpus:
        return None
    unshared = replace(state, nodes=state.unshared_nodes())
    slots = unshared.slots(spec.gpus_per_replica)
    if slots >= spec.min_replicas:
        return None
    drained = [unshared.nodes[name] for name in sorted(state.drains) if name in state.nodes]
    if slots + sum(node.own_gpus // spec.gpus_per_replica for node in drained) >= spec.min_replicas:
        names = ", ".join(node.name for node in drained[:_MOST_PAYERS])
        return f"cannot start while {names} {'is' if len(drained) == 1 else 'are'} drained: voda nodes undrain NODE"
    workers = f"{counted(spec.min_replicas, 'worker')} of {counted(spec.gpus_per_replica, 'GPU')}"
    fits = "no node takes one now" if not slots else f"only {slots} {'fits' if slots == 1 else 'fit'}"
    return f"cannot start on this cluster even when it is empty: it needs {workers}, and {fits}"


def _largest_that_starts(state: ClusterState, spec: JobSpec, at: float, *, policy: Policy, decide: Decide) -> int:
    """Return the largest smaller request with which the job would start now; 0 where there is none."""
    smaller = range(1, spec.requested) if spec.sizes is None else [*takewhile(spec.requested.__gt__, spec.sizes)]

    def starts(size: int) -> bool:
        return _starts(state, _with_request(spec, size), at, policy=policy, decide=decide)

    # By bisection: a job that does not start with a small request starts with no larger one, but for rare ties.
    found = bisect_left(smaller, True, key=lambda size: not starts(size))
    return smaller[found - 1] if found else 0


def _binding_size(state: ClusterState, spec: JobSpec, plan: Plan, policy: Policy) -> Iterator[str]:
    """Yield that a job has no more as it does not run with so many workers as would fit, where that is so."""
    size = len(plan.placement.get(spec.job_id, ()))
    may_grow = size and spec.sizes is not None and not gives_as_requested(policy)
    further = spec.size_above(size) if may_grow else 0
    free, needs = sum(state.free_gpus(plan.placement).values()), (further - size) * spec.gpus_per_replica
    if further and spec.gpus_per_replica <= free < needs:
        yield f"its next size is {further}: that takes {needs} GPUs more, and {number_are(free)} free"


def _with_request(spec: JobSpec, size: int) -> JobSpec:
    return replace(spec, min_replicas=min(spec.min_replicas, size), requested_replicas=size)


def _starts(state: ClusterState, spec: JobSpec, at: float, *, policy: Policy, decide: Decide) -> bool:
    """Return whether the job would be placed now, were it specified like this."""
    jobs = {**state.jobs, spec.job_id: replace(state.jobs[spec.job_id], spec=spec)}
    return spec.job_id in decide(replace(state, jobs=jobs), policy, at).placement
