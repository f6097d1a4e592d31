"""Pools: their nodes, settings and plans."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from voda.api.schemas.base import Instant, View
from voda.domain.state import ParameterValue


class NodeView(View, frozen=True, kw_only=True):
    """One node."""

    name: str
    pool: str
    gpus: int
    foreign_gpus: int
    used_gpus: Annotated[int, Meta(description="By workers observed.")]
    free_gpus: int
    is_ready: bool
    is_schedulable: bool
    labels: Mapping[str, str]
    jobs: Annotated[Mapping[str, int], Meta(description="job id -> GPUs it holds here.")]


class NodeList(View, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[NodeView, ...]


class SettingsView(View, frozen=True, kw_only=True):
    """How a pool is decided."""

    policy: str
    placer: str
    ratelimit_s: float
    parameters: Annotated[
        Mapping[str, Mapping[str, ParameterValue]],
        Meta(description="Of the policies that have some: policy -> parameter -> value in force."),
    ]
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool


class PoolView(View, frozen=True, kw_only=True):
    """One pool at a glance."""

    name: str
    nodes: int
    gpus: Annotated[int, Meta(description="That plans may hand out.")]
    used_gpus: int
    waiting: int
    running: int
    plan: Annotated[int, Meta(description="Number of the plan in force.")]
    settings: SettingsView
    revision: str


class PoolList(View, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[PoolView, ...]


class PlanView(View, frozen=True, kw_only=True):
    """A plan: who gets which nodes, and why."""

    pool: str
    number: int
    position: Annotated[int, Meta(description="Of the event; 0 before the first plan.")]
    based_on: int
    policy: str
    placer: str
    cause: str
    decided_at: Instant | None
    placement: Annotated[Mapping[str, tuple[str, ...]], Meta(description="job id -> node of each worker, by index.")]
    reasons: Mapping[str, str]
    changed: Annotated[
        tuple[str, ...],
        Meta(
            description="Jobs that this plan placed otherwise than the one before; only of a plan asked for by number."
        ),
    ] = ()
