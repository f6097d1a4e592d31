"""Who used the cores: the API server, etcd, voda, and what stands for all others."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.kube.replica import Replica
from benchmarks.table import Row
from tests.kube.control_plane import ControlPlane

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Shares:
    """CPU time from its making on.

    Args:
        plane: the control plane.
        replicas: of voda; processes that they start are counted as far as they are there.
        rest: what this very process does.
    """

    def __init__(self, plane: ControlPlane, replicas: Sequence[Replica], rest: str = "stand-ins and load") -> None:
        self.plane = plane
        self._replicas = replicas
        self._rest = rest
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._begun = time.perf_counter()
        self._before = self._used()

    def rows(self) -> Sequence[Row]:
        """Return each one's part of the CPU time used since, and how much of the machine that was."""
        span_s, used = time.perf_counter() - self._begun, self.seconds()
        total = sum(used.values()) or 1.0
        rows = [
            Row(what=f"CPU: {name}", figure=100 * seconds / total, unit="%")
            for name, seconds in sorted(used.items(), key=lambda item: -item[1])
        ]
        return [*rows, Row(what="CPU: all of them together", figure=total / span_s, unit="cores")]

    def seconds(self) -> Mapping[str, float]:
        """Return the seconds of CPU that each one has used since."""
        return {name: seconds - self._before.get(name, 0.0) for name, seconds in self._used().items()}

    def voda_s(self) -> float:
        """Return the seconds of CPU that voda has used since."""
        return self._used().get("voda", 0.0) - self._before.get("voda", 0.0)

    def total_s(self) -> float:
        """Return the seconds of CPU that all of them have used since."""
        return sum(self._used().values()) - sum(self._before.values())

    def _used(self) -> Mapping[str, float]:
        voda = sum(_cpu_s(pid) for replica in self._replicas for pid in replica.pids())
        own = os.times()
        used = {**self.plane.cpu_s(), "voda": voda, self._rest: own.user + own.system}
        return {name: seconds for name, seconds in used.items() if seconds}


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process, and of those that it started and outlived."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
