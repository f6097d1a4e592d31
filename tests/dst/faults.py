"""What goes wrong, drawn ahead: a schedule that a run is given, and that can be made shorter.

Rule: nothing goes wrong outside of the faults of a schedule; each is an instant or a window that ends by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.domain.rng import rng_at


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that goes wrong."""

    at_s: float
    """Since the beginning of the run."""
    kind: str
    target: str = ""
    """Name of a replica or node; of a job, or empty: drawn at that instant from what is there."""
    span_s: float = 0.0
    share: float = 1.0
    """Of the calls or notices that are hit; of a clock's jump: seconds."""


REPLICA_FAULTS: Final[Mapping[str, tuple[float, float, float]]] = {
    # kind: (weight, shortest span, longest span)
    "crash": (3, 0.5, 120.0),
    # At any step that follows one of its next changes, so that it is hit while it is at work.
    "crash_midway": (6, 0.5, 120.0),
    "freeze_midway": (5, 5.0, 240.0),
    "stop": (2, 0.5, 60.0),
    "freeze": (3, 1.0, 90.0),
    "clock": (2, 0.0, 0.0),
    "store_cut": (3, 2.0, 120.0),
    "store_before": (3, 5.0, 120.0),
    "store_after": (4, 5.0, 120.0),
    "store_slow": (3, 5.0, 180.0),
    "store_full": (2, 5.0, 180.0),
    "tail_lag": (3, 5.0, 120.0),
    "lease_cut": (3, 2.0, 90.0),
    "lease_after": (3, 2.0, 90.0),
    "cluster_cut": (3, 2.0, 120.0),
    "cluster_before": (2, 5.0, 120.0),
    "cluster_after": (3, 5.0, 120.0),
    "cluster_lag": (3, 5.0, 180.0),
    "notices_lost": (3, 5.0, 300.0),
    "notices_late": (3, 5.0, 180.0),
    "notices_twice": (2, 5.0, 180.0),
    "notices_mixed": (2, 5.0, 180.0),
}
"""Of one replica, or of its way to the log, the Lease or the cluster."""
NODE_FAULTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "node_down": (3, 5.0, 900.0),
    "node_gone": (2, 5.0, 900.0),
    # Its workers go on: a late heartbeat, or the network between it and the control plane.
    "node_silent": (4, 0.1, 300.0),
    "node_drain": (2, 30.0, 900.0),
    "node_cordon": (2, 30.0, 900.0),
    # Others take GPUs that are free.
    "node_foreign": (2, 30.0, 900.0),
}
JOB_FAULTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "worker_dies": (6, 0.0, 0.0),
    "job_fails": (1, 0.0, 0.0),
    # None of its workers gets its GPU: an operator that stands still, a quota, a webhook.
    "job_stuck": (3, 60.0, 3_600.0),
}
KINDS: Final = frozenset({*REPLICA_FAULTS, *NODE_FAULTS, *JOB_FAULTS})
_EVERY_S: Final = 240.0
"""Mean span between two faults."""
_FARTHEST_JUMP_S: Final = 900.0


def drawn(seed: int, *, until_s: float, replicas: Sequence[str], nodes: Sequence[str]) -> tuple[Fault, ...]:
    """Return a schedule in the order of its instants; every window is over at `until_s`.

    Args:
        seed: of the run.
        until_s: since the beginning of the run.
        replicas: names.
        nodes: names.
    """
    chance = rng_at(seed, "faults")
    every_s = _EVERY_S * chance.choice([0.1, 0.3, 1.0, 1.0, 3.0])
    table = {**REPLICA_FAULTS, **NODE_FAULTS, **JOB_FAULTS}
    # Each seed has kinds of its own, so that not every story is everything at once.
    kinds = [kind for kind in table if chance.random() < 0.6] or list(table)
    faults: list[Fault] = []
    at_s = 30.0 + chance.expovariate(1 / every_s)
    while at_s < until_s - 1.0:
        [kind] = chance.choices(kinds, [table[kind][0] for kind in kinds])
        _, least_s, most_s = table[kind]
        # Short ones are as likely as long ones.
        span_s = least_s * (most_s / least_s) ** chance.random() if least_s else 0.0
        share = chance.choice([-1.0, 1.0]) * chance.random() * _FARTHEST_JUMP_S
        if kind != "clock":
            share = chance.choice([1.0, 0.5, 0.2, 0.05])
        target = chance.choice(list(replicas)) if kind in REPLICA_FAULTS else ""
        if kind in NODE_FAULTS:
            target = chance.choice(list(nodes))
        span_s = min(span_s, until_s - at_s)
        faults.append(
            Fault(at_s=round(at_s, 3), kind=kind, target=target, span_s=round(span_s, 3), share=round(share, 3))
        )
        at_s += chance.expovariate(1 / every_s)
    return tuple(faults)
