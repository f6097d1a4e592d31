"""The environment of the agents of a PyTorchJob: the operator's variables, as they have to be on one machine. Pure.

Rules: all agents meet at the first replica's port on this machine. TorchElastic counts a peer's departure as a
failure, so an elastic job gets restarts to spare; and it waits for a last call whenever fewer than the most have
come, for half a minute by default, so the wait is made short unless the manifest says otherwise.
"""

import socket
from typing import Final

from voda.cluster.local.run_spec import RunSpec
from voda.domain.job import JobSpec
from voda.kinds.pytorchjob import TorchElasticPolicy, elastic_bounds

SPARE_RESTARTS: Final = 20
"""On top of what the manifest allows; when even these are used up, the agent fails and the job is restarted."""
LAST_CALL_S: Final = 2
SILENT_S: Final = 5
"""An agent that went without a word is given up after this; torch itself waits 15 s."""
_ADDRESS: Final = "127.0.0.1"


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        return int(probe.getsockname()[1])


def environment(blueprint: RunSpec, index: int, *, size: int, port: int) -> dict[str, str]:
    """Return what the agent of replica `index` is told of the others.

    Args:
        blueprint: of the job.
        index: of the replica; 0 is the master where there is one.
        size: replicas running now.
        port: where they meet.
    """
    processes = blueprint.processes or blueprint.spec.gpus_per_replica
    env = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": str(processes)}
    if blueprint.elastic is None and blueprint.has_master:
        return env | _with_master(index, size=size, port=port)
    if blueprint.has_master:
        env |= {"MASTER_ADDR": _ADDRESS, "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "RANK": str(index)}
    return env | _rendezvous(blueprint, index, port)


def _with_master(index: int, *, size: int, port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": _ADDRESS,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "RANK": str(index),
        "PET_MASTER_ADDR": _ADDRESS,
        "PET_MASTER_PORT": str(port),
        "PET_NNODES": str(size),
        "PET_NODE_RANK": str(index),
    }


def _rendezvous(blueprint: RunSpec, index: int, port: int) -> dict[str, str]:
    spec, elastic = blueprint.spec, blueprint.elastic or TorchElasticPolicy()
    backend = elastic.rdzv_backend or "c10d"
    conf = {pair.key: pair.value for pair in elastic.rdzv_conf or ()}
    if backend == "c10d":
        conf.setdefault("last_call_timeout", str(LAST_CALL_S))
        conf.setdefault("keep_alive_interval", "1")
        conf.setdefault("keep_alive_max_attempt", str(SILENT_S))
        # On one machine every agent takes itself for the host: without this, whoever is first would be.
        conf.setdefault("is_host", "1" if index == 0 else "0")
    meeting_port = elastic.rdzv_port if elastic.rdzv_host and elastic.rdzv_port else port
    spare = SPARE_RESTARTS if spec.is_elastic or blueprint.elastic else 0
    return {
        # With a shared store a late agent waits for an address that nobody tells it (seen in torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ENDPOINT": f"{elastic.rdzv_host or _ADDRESS}:{meeting_port}",
        "PET_RDZV_ID": elastic.rdzv_id or spec.job_id,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in conf.items()),
        "PET_NNODES": _nodes(spec, elastic),
        "PET_MAX_RESTARTS": str((elastic.max_restarts or 0) + spare),
    }


def _nodes(spec: JobSpec, elastic: TorchElasticPolicy) -> str:
    """Return min:max of agents: the widest bounds there are, because a running agent cannot be told others.

    An agent that was told too little would leave one that comes later waiting for ever.
    """
    least, most = elastic_bounds(elastic.min_replicas, elastic.max_replicas, spec.min_replicas)
    return f"{min(least, spec.min_replicas)}:{max(most, spec.max_replicas)}"
