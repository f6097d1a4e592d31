"""Decisions: what becomes of a gang that asks for cells, and why one waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from voda.cells.gangs import GangPlacement


@dataclass(frozen=True)
class GangStarts:
    """The worker can start: all its gang's cells are free, or already the gang's."""

    placement: GangPlacement
    slot: int
    """The worker's index in the placement."""
    cancels: tuple[str, ...] = ()
    """Gangs whose reservation of these cells ends."""
    downgrades: tuple[str, ...] = ()
    """Gangs that lose their guarantee and go on."""


@dataclass(frozen=True)
class GangPreempts:
    """The gang has a place, and others must leave it."""

    placement: GangPlacement
    virtual: Mapping[int, int]
    """Physical leaf -> virtual leaf."""
    victims: tuple[str, ...]
    """Gangs that must leave, whole."""
    cancels: tuple[str, ...] = ()
    downgrades: tuple[str, ...] = ()


class WaitReason(StrEnum):
    """What keeps a gang waiting, as a clause."""

    NO_QUOTA = "the virtual cluster has no quota"
    QUOTA_IN_USE = "too few cells of the virtual cluster's quota are free or used by lower priorities"
    QUOTA_BAD = "a quota cell that it needs is on a bad node"
    QUOTA_NOT_SUGGESTED = "a quota cell that it needs is on a node that is not suggested"
    NOT_IDLE = "too few cells are idle"
    IDLE_BAD = "a cell that it needs is on a bad node"
    IDLE_NOT_SUGGESTED = "a cell that it needs is on a node that is not suggested"
    MAPPING_NEEDS_BAD = "the quota is free, and only bad nodes are left for it"
    MAPPING_NEEDS_UNUSABLE = "the quota is free, and only bad nodes or such that are not suggested are left for it"
    BEING_PREEMPTED = "other workers of the gang are being preempted"


@dataclass(frozen=True)
class Blocker:
    """Why a gang has no place in one chain or pinned cell."""

    where: str
    reason: WaitReason
    node: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.reason.value}{f' ({self.node})' if self.node else ''}"


@dataclass(frozen=True)
class GangWaits:
    """The gang has no place now."""

    blockers: tuple[Blocker, ...]
    """In the order of the chains that were searched."""
    cancels: tuple[str, ...] = ()


Decision = GangStarts | GangPreempts | GangWaits
