"""A pod that asks for GPUs, for people: what it has of which GPU, and beside whom, or why it waits.

Rule: pure; text of others cannot command the terminal.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from voda.cli.render.terminal import plain
from voda.wire.pods import PodGpuView, SharingPodView


def pod_text(pod: SharingPodView, when: Callable[[datetime], str]) -> RenderableType:
    """Return all about a pod in sentences; `when` formats an instant."""
    where = f" on {pod.node}" if pod.node else ""
    since = f", its GPUs since {when(pod.assigned_at)}" if pod.assigned_at is not None else ""
    head = Text(plain(f"{pod.pod}: {pod.state}{where}{since}"), style="bold")
    return Group(head, *(Padding(Text(plain(line)), (0, 0, 0, 2)) for line in _lines(pod)))


def _lines(pod: SharingPodView) -> Iterator[str]:
    if pod.asks_for:
        yield f"asks by {pod.asks_by} for {pod.asks_for}"
    yield from (f"{gpu.container}: {_gpu(gpu)}" for gpu in pod.gpus)
    if pod.reason:
        yield f"why: {pod.reason}"


def _gpu(gpu: PodGpuView) -> str:
    name = f" ({gpu.name})" if gpu.name else ""
    gone = "" if gpu.is_present else ", which is gone"
    others = ", ".join(f"{share.pod} ({_amount(share.milli, share.memory_mib)})" for share in gpu.beside)
    beside = f", beside {others}" if others else ""
    return f"{_amount(gpu.milli, gpu.memory_mib)} of GPU {gpu.index}{name}{gone}{beside}"


def _amount(milli: int, memory_mib: int) -> str:
    parts = [f"{milli:,} milli"] * bool(milli) + [f"{memory_mib:,} MiB"] * bool(memory_mib)
    return " and ".join(parts)
