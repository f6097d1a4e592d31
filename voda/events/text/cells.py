"""What virtual clusters guarantee, and parts of GPUs, as English sentences. Pure."""

from collections.abc import Mapping
from typing import assert_never

from voda.domain.gpus import ContainerGpus, GpuRequest
from voda.domain.reasons.cells import (
    CellUse,
    GpusTooSmall,
    IdleCells,
    InCells,
    MostLeft,
    NeedsPart,
    NoGuarantee,
    QuotaInUse,
    QuotaTooSmall,
    TakenBack,
)
from voda.domain.reasons.outcomes import HasPart
from voda.text import counted, number_are


def cells_text(cause: InCells | NoGuarantee | QuotaTooSmall | QuotaInUse | IdleCells | TakenBack) -> str:
    """Return what a virtual cluster guarantees to a job, or why no more."""
    match cause:
        case InCells():
            return _standing(cause)
        case NoGuarantee():
            return _no_guarantee(cause)
        case QuotaTooSmall(pinned_cell=pin, holds=holds, needs=needs, gpus=gpus):
            where = f"pinned cell {pin}" if pin else f"the whole quota of virtual cluster {cause.virtual_cluster}"
            return f"{where} holds {_workers(holds)} of {counted(gpus, 'GPU')}, it needs {needs} at least"
        case QuotaInUse():
            return _quota_in_use(cause)
        case IdleCells(fits=fits, needs=needs):
            but = {
                "too_few": f"it needs {needs} at least",
                "scattered": f"but not all {needs} in one place",
                "policy": f"and {cause.policy} gives them to others or to none",
            }
            return f"idle cells would fit {_workers(fits)}, {but[cause.cause]}"
        case TakenBack(takers=takers):
            return " and ".join(
                f"{f'virtual cluster {each.virtual_cluster}' if each.virtual_cluster else 'a higher priority'}"
                f" took cells of {_workers(each.workers)} back"
                for each in takers
            )
        case _:
            assert_never(cause)


def _standing(cause: InCells) -> str:
    if not cause.virtual_cluster:
        return "on idle cells, without a guarantee"
    if not cause.idle:
        pin = f", in its pinned cell {cause.pinned_cell}" if cause.pinned_cell else ""
        return f"guaranteed by virtual cluster {cause.virtual_cluster}{pin}"
    return f"{cause.guaranteed} guaranteed by virtual cluster {cause.virtual_cluster}, {cause.idle} on idle cells"


def _no_guarantee(cause: NoGuarantee) -> str:
    match cause.cause:
        case "cluster_gone":
            return f"virtual cluster {cause.virtual_cluster} is there no longer"
        case "opportunistic":
            return "it is opportunistic, and has no part in a guarantee"
        case "backs_off":
            return "it has no part in the guarantee for now"
        case "pin_gone":
            return f"virtual cluster {cause.virtual_cluster} has no pinned cell {cause.pinned_cell} any longer"
        case "no_cells":
            return f"virtual cluster {cause.virtual_cluster} has no cells of its own"
        case _:
            assert_never(cause.cause)


def _quota_in_use(cause: QuotaInUse) -> str:
    rank = " of higher priority" if cause.is_by_higher else ""
    if cause.pinned_cell:
        (use,) = cause.uses
        bad = " and is on bad hardware" if use.bad else ""
        of = f"{use.used} of its {counted(use.cells, 'GPU')}"
        return f"pinned cell {cause.pinned_cell} has {of} in use by its own jobs{rank}{bad}"
    uses = " and ".join(map(_use, cause.uses))
    return f"virtual cluster {cause.virtual_cluster} has {uses} in use by its own jobs{rank}"


def _use(use: CellUse) -> str:
    bad = f" ({use.bad} on bad hardware)" if use.bad else ""
    return f"{use.used} of its {use.cells} {use.cell_type}{'' if use.cells == 1 else 's'}{bad}"


def parts_text(cause: NeedsPart | GpusTooSmall | MostLeft) -> str:
    """Return why a job has no part of a GPU."""
    match cause:
        case NeedsPart(request=request, free=free):
            whole = "" if free is None else f", and {number_are(free)} whole"
            return f"needs {request_text(request)} of one GPU{whole}"
        case GpusTooSmall(needs_mib=needs, largest_mib=largest):
            has = f"the largest has {largest:,} MiB" if largest else "the memory of none is known"
            return f"no GPU of the pool has {needs:,} MiB: {has}"
        case MostLeft(virtual_cluster=cluster, milli=milli, memory_mib=memory):
            of = f" of virtual cluster {cluster}" if cluster else ""
            return f"a shared one{of} has at most {milli} milli and {memory:,} MiB left"
        case _:
            assert_never(cause)


def part_text(part: HasPart) -> str:
    """Return which part of which GPU a job has: `250 milli of GPU 0 of n1, beside ...`."""
    others = [f"{each.pod} ({shares_text(each.containers)})" for each in part.beside]
    beside = f", beside {', '.join(others)}" if others else ""
    return f"{shares_text(part.containers)} of {part.node}{beside}"


def shares_text(containers: Mapping[str, ContainerGpus]) -> str:
    """Return what a pod has of GPUs: `250 milli and 4,096 MiB of GPU 0`; of several containers, what each has."""
    if len(containers) == 1:
        return "".join(map(_share, containers.values()))
    return "; ".join(f"for {name} {_share(share)}" for name, share in containers.items()) or "nothing"


def request_text(request: GpuRequest) -> str:
    """Return what a share is: `250 milli and 4,096 MiB`."""
    parts = [f"{request.milli} milli"] if request.milli else []
    parts += [f"{request.memory_mib:,} MiB"] if request.memory_mib else []
    return " and ".join(parts)


def _share(share: ContainerGpus) -> str:
    gpus = f"GPU{'' if len(share.gpus) == 1 else 's'} {', '.join(map(str, share.gpus))}"
    return gpus if share.request.devices else f"{request_text(share.request)} of {gpus}"


def _workers(count: int) -> str:
    return counted(count, "worker")
