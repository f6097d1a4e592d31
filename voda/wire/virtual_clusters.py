"""Virtual clusters and cells, as they travel over HTTP."""

from typing import Annotated

from msgspec import Meta

from voda.domain.cells import CellsSpec
from voda.wire.base import View


class GuaranteeView(View, frozen=True, kw_only=True):
    """The cells of one type that a virtual cluster is guaranteed."""

    chain: Annotated[str, Meta(description="The topmost type of the cells that they are part of.")]
    cell_type: str
    pin: Annotated[str, Meta(description="The pinned cell; empty: they are not pinned.")]
    cells: int
    cells_in_use: Annotated[int, Meta(description="Cells in which its guaranteed workers run.")]
    doomed_cells: Annotated[int, Meta(description="Cells that only broken nodes are left for.")]
    gpus: int
    gpus_in_use: Annotated[int, Meta(description="By its guaranteed workers; the others are lent to whoever gains.")]


class VirtualClusterView(View, frozen=True, kw_only=True):
    """One virtual cluster of a pool."""

    name: str
    pool: str
    members: Annotated[tuple[str, ...], Meta(description="Users; * = everybody.")]
    policy: Annotated[str, Meta(description="By which its jobs share its quota.")]
    quotas: tuple[GuaranteeView, ...]
    borrowed_gpus: Annotated[int, Meta(description="Used by its workers that have no guarantee.")]
    jobs: Annotated[int, Meta(description="Its live jobs.")]
    revision: Annotated[int, Meta(description="How often virtual clusters were applied to the pool.")]


class VirtualClusterList(View, frozen=True, kw_only=True):
    """The virtual clusters that were asked for, pool by pool."""

    items: tuple[VirtualClusterView, ...]


class CellView(View, frozen=True, kw_only=True):
    """One physical cell."""

    pool: str
    address: Annotated[str, Meta(description="Of the cells from the topmost one down to it.")]
    chain: str
    cell_type: str
    level: Annotated[int, Meta(description="1 = a device.")]
    nodes: tuple[str, ...]
    pin: str
    virtual_cluster: Annotated[str, Meta(description="Whose quota it serves now; empty: nobody's.")]
    is_bad: Annotated[bool, Meta(description="Whether it, or a cell in it, is on a node that takes no workers.")]
    gpus: int
    guaranteed_gpus: Annotated[int, Meta(description="Used by workers with a guarantee.")]
    opportunistic_gpus: Annotated[int, Meta(description="Used by workers without one.")]


class CellList(View, frozen=True, kw_only=True):
    """The physical cells that were asked for, each before those in it."""

    items: tuple[CellView, ...]


class SpecificationView(View, frozen=True, kw_only=True):
    """The cells and virtual clusters of a pool, as a file of them says."""

    pool: str
    revision: int
    specification: CellsSpec


class QuotaChangeView(View, frozen=True, kw_only=True):
    """A guarantee that changes."""

    virtual_cluster: str
    chain: str
    cell_type: str
    pin: str
    before: int
    after: int


class LostGuaranteeView(View, frozen=True, kw_only=True):
    """A job of which fewer workers are guaranteed; it goes on."""

    job_id: str
    before: Annotated[int, Meta(description="Guaranteed workers.")]
    after: int


class ApplyView(View, frozen=True, kw_only=True):
    """What another specification changes, or would change."""

    pool: str
    revision: int
    is_applied: Annotated[bool, Meta(description="False: a dry run, or nothing changes.")]
    quotas: tuple[QuotaChangeView, ...]
    downgraded: tuple[LostGuaranteeView, ...]
    warnings: tuple[str, ...]
