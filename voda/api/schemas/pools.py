"""Pools: their nodes, settings and plans."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import UNSET, UnsetType

from voda.api import fields
from voda.api.schemas.base import Request, View


class NodeView(View, frozen=True, kw_only=True):
    """One node."""

    name: str
    pool: str
    gpus: int
    foreign_gpus: int
    used_gpus: int
    """By workers observed."""
    free_gpus: int
    is_ready: bool
    is_schedulable: bool
    labels: Mapping[str, str]
    jobs: Mapping[str, int]
    """job id -> GPUs it holds here."""


class NodeList(View, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[NodeView, ...]


class SettingsView(View, frozen=True, kw_only=True):
    """How a pool is decided."""

    policy: str
    placer: str
    ratelimit_s: float
    tiresias_demote_gpu_s: float
    tiresias_promote_knob: float
    tiresias_compact_pending: int
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool


class SettingsChange(Request, frozen=True, kw_only=True, omit_defaults=True):
    """New settings of a pool: a JSON merge patch."""

    policy: str | UnsetType = UNSET
    placer: str | UnsetType = UNSET
    ratelimit_s: fields.SpanOfADay | UnsetType = UNSET
    tiresias_demote_gpu_s: fields.Service | UnsetType = UNSET
    tiresias_promote_knob: fields.Knob | UnsetType = UNSET
    tiresias_compact_pending: fields.Pending | UnsetType = UNSET
    resize_cost_s: fields.SpanOfADay | UnsetType = UNSET
    span_penalty: fields.Share | UnsetType = UNSET
    heeds_resize_cost: bool | UnsetType = UNSET


class PoolView(View, frozen=True, kw_only=True):
    """One pool at a glance."""

    name: str
    nodes: int
    gpus: int
    """That plans may hand out."""
    used_gpus: int
    waiting: int
    running: int
    plan: int
    """Number of the plan in force."""
    settings: SettingsView
    revision: str


class PoolList(View, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[PoolView, ...]


class PlanView(View, frozen=True, kw_only=True):
    """A plan: who gets which nodes, and why."""

    pool: str
    number: int
    position: int
    """Of the event; 0 before the first plan."""
    based_on: int
    policy: str
    placer: str
    cause: str
    decided_at: datetime | None
    placement: Mapping[str, tuple[str, ...]]
    """job id -> node of each worker, by index."""
    reasons: Mapping[str, str]
    changed: tuple[str, ...] = ()
    """Jobs that this plan placed otherwise than the one before; only of a plan asked for by number."""
