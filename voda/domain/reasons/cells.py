"""What virtual clusters guarantee to a job, and why they give it no more; which part of a GPU it lacks."""

from typing import Literal

from msgspec import Struct

from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.reasons.base import ReasonPart


class InCells(ReasonPart, frozen=True, kw_only=True):
    """What guarantees its workers; without a virtual cluster, nothing: all are on idle cells."""

    guaranteed: int = 0
    """Workers, where not all of them are."""
    idle: int = 0
    """The others."""
    virtual_cluster: str = ""
    pinned_cell: str = ""


class NoGuarantee(ReasonPart, frozen=True, kw_only=True):
    """It has no part in a guarantee."""

    cause: Literal["cluster_gone", "opportunistic", "backs_off", "pin_gone", "no_cells"]
    virtual_cluster: str = ""
    pinned_cell: str = ""


class QuotaTooSmall(ReasonPart, frozen=True, kw_only=True):
    virtual_cluster: str
    pinned_cell: str = ""
    holds: int = 0
    """Workers."""
    needs: int
    gpus: Gpus
    """Of each worker."""


class CellUse(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is in use of the cells of one type; of a pinned cell, of its GPUs."""

    cell_type: str = ""
    used: int = 0
    cells: int
    bad: int = 0
    """Cells on bad hardware."""


class QuotaInUse(ReasonPart, frozen=True, kw_only=True):
    """The virtual cluster's own jobs have its cells; only those of higher priority count where there are lower ones."""

    virtual_cluster: str
    pinned_cell: str = ""
    uses: tuple[CellUse, ...]
    is_by_higher: bool = False


class IdleCells(ReasonPart, frozen=True, kw_only=True):
    """Idle cells would fit so many workers, and yet the job gets none."""

    fits: int = 0
    needs: int
    cause: Literal["too_few", "scattered", "policy"] = "too_few"
    policy: str = ""


class Taker(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    virtual_cluster: str = ""
    """Empty: the job's own, for a higher priority."""
    workers: int


class TakenBack(ReasonPart, frozen=True, kw_only=True):
    """Cells of so many of its workers were taken back."""

    takers: tuple[Taker, ...]


QuotaCause = NoGuarantee | QuotaTooSmall | QuotaInUse


class NeedsPart(ReasonPart, frozen=True, kw_only=True):
    """It needs a part of one GPU."""

    request: GpuRequest
    free: Gpus | None = None
    """GPUs of which nobody has any; None: something else decides."""


class GpusTooSmall(ReasonPart, frozen=True, kw_only=True):
    """No GPU of the pool has the memory; 0: of none it is known."""

    needs_mib: int
    largest_mib: int = 0


class MostLeft(ReasonPart, frozen=True, kw_only=True):
    """What is left at most of a GPU that others share."""

    virtual_cluster: str = ""
    """Theirs and the job's."""
    milli: int = 0
    memory_mib: int = 0
