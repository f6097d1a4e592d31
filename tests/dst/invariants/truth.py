"""The cluster as it really is, at every change of it.

Rules: the workers on a node never hold more GPUs than it has, ending ones included (so nothing is started where the
holder before is not gone); a worker is on a node of its job's pool; only submitted jobs have workers.
"""

from collections.abc import Mapping

from tests.dst.cluster import Held
from tests.dst.invariants.broken import Broken
from voda.domain.job import JobSpec
from voda.domain.node import Node


def refuse_untrue(
    nodes: Mapping[str, Node], workers: Mapping[str, Mapping[int, Held]], specs: Mapping[str, JobSpec]
) -> None:
    """Check one instant.

    Args:
        nodes: what is there, by name.
        workers: job id -> index -> what holds GPUs.
        specs: of all jobs that were ever submitted.

    Raises:
        Broken: it must never be so.
    """
    used: dict[str, int] = {}
    for job_id, held in workers.items():
        if not held:
            continue
        spec = specs.get(job_id)
        if spec is None:
            raise Broken("unknown work", f"{len(held)} workers run for job {job_id}, which nobody submitted")
        for index, worker in held.items():
            used[worker.node] = used.get(worker.node, 0) + worker.gpus
            node = nodes.get(worker.node)
            if node is not None and node.pool != spec.pool:
                what = f"worker {index} of job {job_id} (pool {spec.pool}) is on {worker.node} of pool {node.pool}"
                raise Broken("pools", what)
    for name, gpus in used.items():
        node = nodes.get(name)
        if node is not None and gpus > node.gpus:
            raise Broken("observed free", f"{gpus} GPUs are held on node {name}, which has {node.gpus}")
