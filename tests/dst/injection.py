"""Lets faults happen, and takes them back.

Rule: once `calm` was called everything is whole, and stays so.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tests.dst.chance import Chance
from tests.dst.cluster import TrueCluster
from tests.dst.faults import NODE_FAULTS, REPLICA_FAULTS, Fault
from tests.dst.replica import Replica
from voda.domain.node import Node


class Scene(Protocol):
    """What faults happen to."""

    chance: Chance
    cluster: TrueCluster
    replicas: Sequence[Replica]
    is_quiet: bool

    def later(self, span_s: float, act: Callable[..., object], *args: Any) -> object:
        """Have something done after a while."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...


class Injection:
    """The faults of one run."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._nodes: Mapping[str, Node] = dict(scene.cluster.nodes)
        """As they are when all is well."""
        self._windows: list[tuple[Replica, Fault]] = []

    def begin(self, fault: Fault) -> None:
        """Let a fault happen."""
        if self._scene.is_quiet:
            return
        self._scene.note(f"fault {fault.kind} {fault.target} {fault.span_s:g} s {fault.share:g}")
        if fault.kind in REPLICA_FAULTS:
            self._hit_replica(fault)
        elif fault.kind in NODE_FAULTS:
            self._hit_node(fault)
        else:
            self._hit_job(fault)

    def calm(self) -> None:
        """Take everything back."""
        self._scene.note("calm")
        self._scene.is_quiet = True
        for replica, fault in list(self._windows):
            self._end_window(replica, fault)
        for replica in self._scene.replicas:
            replica.thaw()
            replica.start_later(0.5)
        for node in self._nodes:
            self._mend(node)
        self._scene.cluster.stuck.clear()

    # ---- replicas

    def _hit_replica(self, fault: Fault) -> None:
        replica = next(each for each in self._scene.replicas if each.name == fault.target)
        match fault.kind:
            case "crash":
                self._crash(replica, fault.span_s)
            case "stop":
                replica.stop()
                replica.start_later(fault.span_s)
            case "freeze":
                self._freeze(replica, fault.span_s)
            case "crash_midway":
                chance = self._scene.chance.of(f"midway {fault.at_s}")
                replica.strike_midway(chance, lambda: self._crash(replica, fault.span_s))
            case "freeze_midway":
                chance = self._scene.chance.of(f"midway {fault.at_s}")
                replica.strike_midway(chance, lambda: self._freeze(replica, fault.span_s))
            case "clock":
                replica.off_s += fault.share
            case _:
                self._windows.append((replica, fault))
                replica.trouble.begin(fault)
                replica.stir()
                self._scene.later(fault.span_s, self._end_window, replica, fault)

    def _crash(self, replica: Replica, span_s: float) -> None:
        if not self._scene.is_quiet:
            replica.kill()
            replica.start_later(span_s)

    def _freeze(self, replica: Replica, span_s: float) -> None:
        if not self._scene.is_quiet:
            replica.freeze()
            self._scene.later(span_s, replica.thaw)

    def _end_window(self, replica: Replica, fault: Fault) -> None:
        left = [window for window in self._windows if window[1] is not fault]
        if len(left) < len(self._windows):
            self._windows = left
            self._scene.note(f"over {fault.kind} {fault.target}")
            replica.trouble.end(fault)
            replica.stir()

    # ---- nodes

    def _hit_node(self, fault: Fault) -> None:
        cluster = self._scene.cluster
        match fault.kind:
            case "node_down":
                cluster.change_node(fault.target, is_ready=False)
            case "node_silent":
                cluster.change_node(fault.target, is_ready=False, is_lost=False)
            case "node_drain":
                cluster.change_node(fault.target, is_draining=True)
            case "node_cordon":
                cluster.change_node(fault.target, is_schedulable=False)
            case "node_gone":
                cluster.remove_node(fault.target)
            case "node_foreign" if (node := cluster.nodes.get(fault.target)) is not None:
                free = node.gpus - cluster.used(node.name)
                cluster.change_node(node.name, foreign_gpus=round(free * fault.share))
        self._scene.later(fault.span_s, self._mend, fault.target)

    def _mend(self, name: str) -> None:
        self._scene.cluster.add_node(self._nodes[name])
        self._scene.cluster.change_node(name, is_ready=True, is_schedulable=True, is_draining=False, foreign_gpus=0)

    # ---- jobs

    def _hit_job(self, fault: Fault) -> None:
        cluster, chance = self._scene.cluster, self._scene.chance.of(f"job fault {fault.at_s}")
        job_id = fault.target or _any(chance, list(cluster.workers))
        if fault.kind == "job_stuck":
            self._stick(fault, job_id)
            return
        if fault.kind == "worker_dies":
            index = _any(chance, sorted(cluster.workers.get(job_id, ())))
            if index is not None:
                cluster.kill_worker(job_id, index)
        elif job_id:
            cluster.fail_job(job_id)

    def _stick(self, fault: Fault, job_id: str | None) -> None:
        """Take the workers of a job away, and let it get none for a while."""
        if job_id is None:
            return
        cluster = self._scene.cluster
        cluster.stuck[job_id] = fault
        for index in sorted(cluster.workers.get(job_id, ())):
            cluster.kill_worker(job_id, index)
        self._scene.later(fault.span_s, self._loosen, job_id, fault)

    def _loosen(self, job_id: str, fault: Fault) -> None:
        if self._scene.cluster.stuck.get(job_id) is fault:
            del self._scene.cluster.stuck[job_id]


def _any(chance: Random, choices: Sequence[Any]) -> Any:
    return chance.choice(choices) if choices else None
