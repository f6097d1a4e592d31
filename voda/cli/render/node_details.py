"""One node for people: its GPUs, who holds them, and each of its GPUs with the pods, or the job, that have it.

Rule: pure; text of others cannot command the terminal; at most 80 columns where the terminal has no more.
"""

from rich.text import Text

from voda.cli.render.job_text import NONE
from voda.cli.render.tables import Column, foreign_gpus, shared_gpus, silence, table
from voda.cli.render.terminal import plain
from voda.text import counted
from voda.wire.pools import GpuView, NodeView

_INDEX = Column(head="GPU", right=True)
_DEVICE = Column(head="DEVICE", cut=2, least=10)
_GPU = (
    Column(head="MILLI FREE", right=True),
    Column(head="MEMORY FREE", right=True),
    Column(head="HELD BY", cut=1, least=16),
    Column(head="MILLI", right=True),
    Column(head="MEMORY", right=True),
)


def node_text(node: NodeView, *, width: int | None) -> list[Text]:
    """Return all about one node, line by line."""
    common, devices = _devices(node)
    facts = (
        ("Node", node.name),
        ("Pool", node.pool),
        ("Status", _status(node)),
        ("GPUs", _gpus(node)),
        ("Jobs", ", ".join(f"{job_id} x{gpus}" for job_id, gpus in node.jobs.items()) or NONE),
        *((("Taints", ", ".join(node.taints)),) if node.taints else ()),
        ("Labels", ",".join(f"{name}={value}" for name, value in sorted(node.labels.items())) or NONE),
        ("Shared", _shared(node)),
        *((("Driver", common),) if common else ()),
    )
    head = [Text(f"{name + ':':<8}{plain(value)}") for name, value in facts]
    if not node.devices:
        return head
    rows = [
        [*(own if not turn else [""] * len(own)), *row]
        for gpu, device in zip(node.devices, devices, strict=True)
        for own in [[str(gpu.index), *([device] if any(devices) else [])]]
        for turn, row in enumerate(_rows(gpu))
    ]
    return [*head, Text(), *table((_INDEX, *((_DEVICE,) if any(devices) else ()), *_GPU), rows, width=width)]


def _devices(node: NodeView) -> tuple[str, list[str]]:
    """Return whose devices the GPUs are, if all are of one driver's pool, and each GPU's name within it."""
    parts = [plain(gpu.name).rpartition("/") for gpu in node.devices]
    if len(pools := {pool for pool, _, name in parts if name}) != 1:
        return "", ["/".join(filter(None, (pool, name))) or (NONE if pools else "") for pool, _, name in parts]
    driver, _, pool = pools.pop().partition("/")
    return f"{driver}, pool {pool}", [name or NONE for _, _, name in parts]


def _status(node: NodeView) -> str:
    notes = ["ready" if node.is_ready else "not ready"]
    notes += [] if node.is_schedulable else ["cordoned"]
    notes += [node.drain_message or "draining"] if node.is_draining else []
    notes += [why] if (why := silence(node)) else []
    return ", ".join(notes)


def _gpus(node: NodeView) -> str:
    shared = shared_gpus(node)
    parts = [str(node.gpus), f"{node.used_gpus} used", f"{node.free_gpus} free"]
    parts += [f"{shared} of shared GPUs"] if shared and node.gpus else []
    return ", ".join([*parts, f"{foreign_gpus(node)} used by others"])


def _shared(node: NodeView) -> str:
    if not node.devices:
        return "none of its GPUs"
    gone = sum(1 for gpu in node.devices if not gpu.is_present)
    lost = f"; {counted(gone, 'GPU')} gone of which pods still have shares" if gone else ""
    present = sum(1 for gpu in node.devices if gpu.is_present)
    jobs = _gpus_of_unknown_index(node)
    hidden = f"; jobs have {jobs} of those shown as free, it is not known which" if jobs else ""
    return f"{shared_gpus(node)} of {counted(present, 'GPU')}{lost}{hidden}"


def _gpus_of_unknown_index(node: NodeView) -> int:
    """Return how many of the GPUs that seem free jobs have at least; a node may have GPUs that are no such GPUs."""
    known = sum(1 for gpu in node.devices if gpu.job)
    free = sum(1 for gpu in node.devices if gpu.is_present and not gpu.shares and not gpu.job)
    others = max(0, node.gpus - sum(1 for gpu in node.devices if gpu.is_present))
    return min(free, max(0, node.used_gpus - known - others))


def _rows(gpu: GpuView) -> list[list[str]]:
    """Return a row for each share of a GPU, the first with what is left of it; one where nobody has any, or a job
    has all.
    """
    if gpu.job and not gpu.shares:
        return [["0", NONE, f"job {plain(gpu.job)}", "1,000", _memory(gpu.memory_mib)]]
    left = [f"{gpu.free_milli:,}", _memory(gpu.free_memory_mib) if gpu.memory_mib else NONE]
    own = left if gpu.is_present else ["gone", "gone"]
    if not gpu.shares:
        return [[*own, NONE, NONE, NONE]]
    return [
        [*(own if not turn else ["", ""]), plain(share.pod), f"{share.milli:,}", _memory(share.memory_mib)]
        for turn, share in enumerate(gpu.shares)
    ]


def _memory(mib: int) -> str:
    return f"{mib:,} MiB" if mib else NONE
