"""Pools: their nodes, settings and plans."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import UNSET, UnsetType

from voda.api import fields
from voda.api.schemas.base import Asked, Wire
from voda.domain.state import ParameterValue


class Node(Wire, frozen=True, kw_only=True):
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


class NodeList(Wire, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[Node, ...]


class Settings(Wire, frozen=True, kw_only=True):
    """How a pool is decided."""

    policy: str
    placer: str
    ratelimit_s: float
    parameters: Mapping[str, Mapping[str, ParameterValue]]
    """Of the policies that have some: policy -> parameter -> value in force."""
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool


class SettingsChange(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """New settings of a pool: a JSON merge patch."""

    policy: str | UnsetType = UNSET
    placer: str | UnsetType = UNSET
    ratelimit_s: fields.SpanOfADay | UnsetType = UNSET
    parameters: Mapping[str, Mapping[str, ParameterValue]] | UnsetType = UNSET
    """Policy -> parameter -> value; what is not named stays."""
    resize_cost_s: fields.SpanOfADay | UnsetType = UNSET
    span_penalty: fields.Share | UnsetType = UNSET
    heeds_resize_cost: bool | UnsetType = UNSET


class Pool(Wire, frozen=True, kw_only=True):
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
    settings: Settings
    revision: str


class PoolList(Wire, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[Pool, ...]


class Plan(Wire, frozen=True, kw_only=True):
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
