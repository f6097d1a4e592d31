"""One moment of a cluster as tables for a terminal of 80 columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.simulator.report.units import counted, span
from voda.timetravel.moment import rfc3339

if TYPE_CHECKING:
    from voda.projections.learning import Accuracy
    from voda.timetravel.snapshot_tables import ClusterSnapshot, JobRow, NodeRow

_LEGEND = "size: replicas/min-max (>planned); served: GPU hours; prio: priority/queue"


def snapshot_tables(scene: "ClusterSnapshot") -> RenderableType:
    """Return the tables of nodes and jobs at one moment."""
    parts: list[RenderableType] = [Text(_title(scene)), _nodes(scene.nodes), _jobs(scene.jobs, scene.at)]
    return Group(*parts, Text(_LEGEND)) if scene.jobs else Group(*parts)


def accuracy_table(accuracy: "Mapping[str, Accuracy]") -> RenderableType:
    """Return how far predictions at submission were from the measured work of finished jobs."""
    table = _table("kind of job", "predicted", "mean error")
    for category, one in accuracy.items():
        table.add_row(Text(category), counted(one.jobs, "job"), f"{one.mean_error:.0%}")
    return Group(Text("Time of an epoch on one replica, predicted at submission against measured:"), table)


def _title(scene: "ClusterSnapshot") -> str:
    used = sum(sum(node.held_gpus.values()) for node in scene.nodes)
    return (
        f"Pool {scene.pool} at position {scene.position}, {rfc3339(scene.at, decimals=0)}: {used} of"
        f" {counted(scene.capacity_gpus, 'GPU')} held, plan {scene.plan}, {scene.policy}, {scene.placer}"
    )


def _nodes(nodes: "Sequence[NodeRow]") -> Table:
    table = _table("node", "GPUs", "free", "held by")
    for node in nodes:
        held = [f"{job_id} x{gpus}" if gpus > 1 else job_id for job_id, gpus in node.held_gpus.items()]
        held += [f"others x{node.foreign_gpus}"] if node.foreign_gpus else []
        notes = [] if node.is_ready else ["NOT READY"]
        notes += [] if node.is_schedulable else ["cordoned"]
        table.add_row(Text(node.name), str(node.gpus), str(node.free_gpus), Text(", ".join([*notes, *held]) or "-"))
    return table


def _jobs(jobs: "Sequence[JobRow]", at: float) -> Table:
    table = _table("job", "phase", "size", "GPUs", "waited", "served", "epochs", "ends in", "prio")
    for job in jobs:
        size = f"{job.replicas}/{job.min_replicas}-{job.max_replicas}"
        size += f">{job.planned}" if job.planned != job.replicas else ""
        epochs = f"{job.epochs_done:g}/{job.epochs or '?'}"
        table.add_row(
            Text(job.job_id),
            job.phase,
            size,
            str(job.gpus),
            span(job.waited_s),
            f"{job.attained_gpu_s / 3600:.2f}h",
            epochs,
            "-" if job.ends_at is None else span(max(0.0, job.ends_at - at)),
            f"{job.priority}/{job.queue_level}",
        )
    if not jobs:
        table.add_row("no live jobs")
    return table


def _table(*heads: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, head in enumerate(heads):
        # On a narrow terminal names are folded, figures never.
        is_text = index == 0 or head in ("held by", "phase")
        table.add_column(head, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    return table
