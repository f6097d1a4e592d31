"""Users take turns, where the pool's `fair_share` says so: a user who has had less GPU time lately goes first.

1. Each user's turn gives the minimum of one more job to the user who comes first by the GPUs of the last days, in the
   mean, and those of the turns before, by weight; then what is left goes round in the same way, up to what each can
   use. So a user without any has a job before the further jobs of others, and before what theirs need not have.
2. The policy serves the jobs of each user on as many GPUs as their turns gave: it alone knows their order and sizes.
   What it cannot use is for the users who follow, and in the end for all.

Rules: pure; jobs of one user alone, and of a pool without the setting, are decided as if this were not there. What a
user has already counts as a little less, so that turns change when hours have made a difference, not at each event.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, Gpus, total
from voda.domain.job import Job
from voda.domain.plan import Allocation
from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.policies import UserTurns
from voda.domain.settings import user_weights
from voda.domain.state import ClusterState, UserService, mean_life
from voda.planner.allocation.parts import of_part
from voda.policies import Policy, gives_as_requested

Allocate = Callable[[ClusterState], Allocation]
"""What a policy makes of a view."""
_STAYS: Final = 1 / 24
"""Of the pool's GPUs: by so many fewer a user comes first with what they have already."""
TURNS_IN_A_HALF_LIFE: Final = 24
"""So often turns are looked at again, without another event."""


class _Share(Struct, kw_only=True):
    """One user in a decision; changed in place."""

    user: str
    weight: float
    had: float
    """GPUs in the mean of the last time, by weight."""
    in_force: Gpus
    jobs: Mapping[str, Job]
    minima: list[Gpus]
    """Of the jobs that have had no turn; the next one is the last."""
    wants: Gpus
    """GPUs that the policy would give the jobs, were the others not there."""
    step: Gpus
    """Of the largest worker."""
    gpus: Gpus = NO_GPUS
    """Given by turns."""

    def rank(self, gpus: Gpus, stays: float) -> tuple[float, str]:
        """Return what orders the next turn, which gives so many GPUs: the least goes first."""
        at_home = stays if self.gpus + gpus <= self.in_force else 0.0
        return self.had + self.gpus / self.weight - at_home, self.user


def allocate_fairly(view: ClusterState, policy: Policy, now: float, allocate: Allocate) -> Allocation:
    """Return the policy's answer for every ready job, by turns of the users where the pool has that.

    `allocate` asks the policy about a part of the view's jobs, with `capacity_limit_gpus`.
    """
    weights = user_weights(view.settings.fair_share)
    if weights is None:
        return allocate(view)
    of_user: dict[str, dict[str, Job]] = {}
    for job_id, job in view.jobs.items():
        if not job.is_canceling:
            of_user.setdefault(job.spec.user, {})[job_id] = job
    if len(of_user) < 2:
        return allocate(view)
    shares = [_share(view, user, jobs, weights, policy, now) for user, jobs in sorted(of_user.items())]
    _take_turns(shares, view.capacity_gpus)
    return _served(view, shares, allocate)


def _share(  # noqa: PLR0913 - one user among the facts of a decision
    view: ClusterState, user: str, jobs: Mapping[str, Job], weights: Mapping[str, float], policy: Policy, now: float
) -> _Share:
    alone = policy.allocate(replace(view, jobs=jobs, capacity_limit_gpus=view.capacity_gpus), now).replicas
    in_force = view.plan.placement
    is_rigid = gives_as_requested(policy)

    def turn(job_id: str) -> tuple[float, str]:
        return jobs[job_id].submitted_at, job_id

    sizes = [(jobs[job_id].spec, alone[job_id]) for job_id in sorted(alone, key=turn, reverse=True) if alone[job_id]]
    weight, half_life_s = weights.get(user, 1.0), view.settings.fair_share_half_life_s
    service = view.service.get(user, UserService()).by(now, half_life_s)
    return _Share(
        user=user,
        weight=weight,
        had=service.gpu_s / mean_life(half_life_s) / weight,
        in_force=total(len(in_force.get(job_id, ())) * job.spec.gpus_per_replica for job_id, job in jobs.items()),
        jobs=jobs,
        minima=[(size if is_rigid else min(size, spec.min_replicas)) * spec.gpus_per_replica for spec, size in sizes],
        wants=total(size * spec.gpus_per_replica for spec, size in sizes),
        step=max((spec.gpus_per_replica for spec, _ in sizes), default=Gpus(1)),
    )


def _take_turns(shares: list[_Share], gpus: Gpus) -> None:
    """Divide so many GPUs: first a minimum a turn, then what is left."""
    stays, free = gpus * _STAYS, gpus
    for next_turn in (_next_minimum, _next_step):
        heap = [
            (share.rank(turn, stays), index, turn) for index, share in enumerate(shares) if (turn := next_turn(share))
        ]
        heapify(heap)
        while heap and free:
            _, index, turn = heappop(heap)
            share = shares[index]
            if turn <= free:
                share.gpus += turn
                free -= turn
            elif next_turn is _next_step:
                continue
            if share.minima and next_turn is _next_minimum:
                share.minima.pop()
            if further := next_turn(share):
                heappush(heap, (share.rank(further, stays), index, further))


def _next_minimum(share: _Share) -> Gpus:
    return share.minima[-1] if share.minima else NO_GPUS


def _next_step(share: _Share) -> Gpus:
    return Gpus(max(0, min(share.step, share.wants - share.gpus)))


def _served(view: ClusterState, shares: list[_Share], allocate: Allocate) -> Allocation:
    """Return what the policy makes of the shares; GPUs that one user's jobs cannot use go on to the next."""
    answers: dict[str, Allocation] = {}
    used: dict[str, Gpus] = {}
    free = view.capacity_gpus - total(share.gpus for share in shares)
    # The first time each has its own share, the second time all that the others left.
    order = sorted(shares, key=lambda share: (share.had, share.user))
    for is_rest in (False, True):
        for share in order:
            gpus = used[share.user] if is_rest else share.gpus
            if is_rest and (not free or gpus >= share.wants):
                continue
            answer = allocate(replace(view, jobs=share.jobs, capacity_limit_gpus=gpus + free))
            takes = _gpus_of(answer, share.jobs)
            free += gpus - takes
            answers[share.user], used[share.user] = answer, takes
    reasons: dict[str, Reason] = {}
    for share in shares:
        why = UserTurns(gpus=used[share.user], had_gpus=round(share.had * share.weight, 1), users=len(shares))
        answer = answers[share.user]
        for job_id, size in answer.replicas.items():
            is_kept = 0 < size == len(view.plan.placement.get(job_id, ()))
            reason = of_part(answer.reasons[job_id], user=share.user)
            reasons[job_id] = reason if is_kept else replace(reason, why=(why, *reason.why))
    return Allocation(
        replicas={job_id: size for share in shares for job_id, size in answers[share.user].replicas.items()},
        reasons=reasons,
    )


def _gpus_of(answer: Allocation, jobs: Mapping[str, Job]) -> Gpus:
    return total(size * jobs[job_id].spec.gpus_per_replica for job_id, size in answer.replicas.items())
