"""Pools as the API shows them: with their settings, their nodes and their plans.

Rule: a revision is a digest of what is shown, so that equal revisions mean equal contents.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.api.presenters.gpus import gpus_of
from voda.cells.pool_cells import RACK_LABELS
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.settings import Settings
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.events.text.reasons import reason_text
from voda.events.text.requests import requested_text
from voda.manifests.parse import ACCELERATOR
from voda.policies.toolkit.parameters import parameters_in_force
from voda.wire.base import view_of
from voda.wire.pools import GpuView, NodeView, PlanView, PoolView

_DIGITS = 16
_LABELS: Final = frozenset(
    (
        ACCELERATOR,
        "kubernetes.io/hostname",
        "node.kubernetes.io/instance-type",
        "nvidia.com/gpu.product",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        *RACK_LABELS,
    )
)
"""Those of a node that are shown: feature discovery writes about 150 more."""


def settings_of(settings: Settings) -> Settings:
    """Return the settings with the parameters of all policies as they are in force."""
    return replace(settings, parameters=parameters_in_force(settings))


def pool_of(state: ClusterState) -> PoolView:
    """Return a pool at a glance."""
    running = sum(1 for job in state.jobs.values() if job.phase is Phase.RUNNING)
    pool = PoolView(
        name=state.pool,
        nodes=len(state.nodes),
        gpus=state.capacity_gpus,
        shared_gpus=state.shared_gpus,
        used_gpus=sum(job.gpus for job in state.jobs.values()),
        waiting=len(state.jobs) - running,
        running=running,
        plan=state.plan.number,
        settings=settings_of(state.settings),
        revision="",
    )
    return replace(pool, revision=revision_of(pool))


def revision_of(record: msgspec.Struct) -> str:
    """Return what changes with every change of the record."""
    return sha256(msgspec.json.encode(record)).hexdigest()[:_DIGITS]


def nodes_of(
    state: ClusterState, shares: Mapping[str, SharingNode], job_gpus: Callable[[str], Mapping[int, str]]
) -> tuple[NodeView, ...]:
    """Return the nodes of a pool by name; `shares` are the accounts of shared GPUs by node, `job_gpus` returns of a
    node GPU -> the job that has all of it, where that is known.
    """
    gpus = gpus_by_node(state.jobs.values())
    shareable = {name: gpus_of(account, job_gpus(name)) for name, account in shares.items() if name in state.nodes}
    return tuple(
        node_of(state, node, gpus.get(name, {}), shareable.get(name, ())) for name, node in sorted(state.nodes.items())
    )


def plan_of(plan: Plan, *, position: int, changed: Sequence[str] = ()) -> PlanView:
    """Return a plan, which the event at `position` adopted (0 = none yet), and the jobs that it placed otherwise."""
    decided_at = plan.decided_at if plan.number else None
    messages = {job_id: reason_text(reason) for job_id, reason in plan.reasons.items()}
    return view_of(PlanView, plan, position=position, decided_at=decided_at, messages=messages, changed=tuple(changed))


def gpus_by_node(jobs: Iterable[Job]) -> Mapping[str, Mapping[str, int]]:
    """Return node -> job id -> GPUs that the job's workers hold there."""
    gpus: dict[str, Counter[str]] = defaultdict(Counter)
    for job in (job for job in jobs if job.spec.gpus_per_replica):
        for node in job.workers.values():
            gpus[node][job.spec.job_id] += job.spec.gpus_per_replica
    return gpus


def node_of(state: ClusterState, node: Node, jobs: Mapping[str, int], shareable: tuple[GpuView, ...]) -> NodeView:
    """Return a node on which jobs (id -> GPUs) hold GPUs; `shareable` are those of which pods may have parts."""
    used, since, drain = sum(jobs.values()), state.silent_since.get(node.name), state.drains.get(node.name)
    until = None if since is None or state.is_mostly_silent else since + state.settings.node_grace_s
    return view_of(
        NodeView,
        node,
        used_gpus=used,
        free_gpus=max(0, node.usable_gpus - used),
        drain_reason=drain,
        drain_message=requested_text("drained", drain.by, drain.text) if drain is not None else "",
        silent_since=since,
        labels={key: value for key, value in node.labels.items() if key in _LABELS},
        taints=tuple(taint.text for taint in node.taints),
        workers_stay_until=until,
        jobs=dict(sorted(jobs.items())),
        staying=tuple(job_id for job_id in sorted(jobs) if state.jobs[job_id].is_fixed),
        devices=shareable,
    )
