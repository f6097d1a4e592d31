"""Step functions of time, averaged over equal bins: what a curve of a given width can show, exactly."""

from collections.abc import Iterable, Mapping

import numpy as np

from voda.projections.timeline import Floats, Segment, Steps, integral_until


def edges(begin: float, end: float, count: int) -> Floats:
    """Return the edges of `count` equal bins, shape (count + 1,)."""
    return np.linspace(begin, max(end, begin + 1e-6), count + 1)


def mean_per_bin(at_s: Floats, values: Floats, bins: Floats) -> Floats:
    """Return the time-weighted mean of a step function in each bin.

    Args:
        at_s: shape (n,), as for `integral_until`, but may be empty.
        values: shape (n,); before at_s[0] the function is 0.
        bins: shape (m + 1,), edges.

    Returns:
        Shape (m,).
    """
    if not len(at_s):
        return np.zeros(len(bins) - 1)
    return np.diff(integral_until(at_s, values, bins)) / np.diff(bins)


def occupancy(segments: Iterable[Segment], sizes: Mapping[str, int], bins: Floats) -> Floats:
    """Return the share of each node's GPUs that was held in each bin, shape (nodes, bins), 0 to 1."""
    changes: dict[str, list[tuple[float, int]]] = {node: [] for node in sizes}
    for segment in segments:
        changes.setdefault(segment.node, []).extend(((segment.from_s, segment.gpus), (segment.to_s, -segment.gpus)))
    rows = [_held_share(sorted(node_changes), sizes.get(node, 0), bins) for node, node_changes in changes.items()]
    return np.array(rows).reshape(len(changes), len(bins) - 1)


def waiting_and_used(steps: Steps, bins: Floats) -> tuple[Floats, Floats]:
    """Return the mean queue length and the mean GPUs in use per bin."""
    return mean_per_bin(steps.at_s, steps.queued, bins), mean_per_bin(steps.at_s, steps.gpus_in_use, bins)


def _held_share(changes: list[tuple[float, int]], gpus: int, bins: Floats) -> Floats:
    columns = np.array(changes, dtype=np.float64).reshape(-1, 2)
    held = mean_per_bin(columns[:, 0], np.cumsum(columns[:, 1]), bins)
    return np.clip(held / max(gpus, 1), 0.0, 1.0)
