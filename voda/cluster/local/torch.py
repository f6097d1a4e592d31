"""The environment of the agents of a PyTorchJob: the operator's variables, as they have to be on one machine. Pure.

Rules: all agents meet at the first replica's port on this machine. TorchElastic counts a peer's departure as a
failure, so an elastic job gets restarts to spare; and it waits for a last call whenever fewer than the most have
come, for half a minute by default, so the wait is made short unless the manifest says otherwise.
"""

import socket
from typing import Final

from voda.cluster.local.run_spec import RunSpec

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
    env = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": processes(blueprint)}
    if blueprint.elastic is None and blueprint.has_master:
        return env | _with_master(index, size=size, port=port)
    if blueprint.has_master:
        env |= {"MASTER_ADDR": _ADDRESS, "MASTER_PORT": str(port), "WORLD_SIZE": str(size), "RANK": str(index)}
    return env | _rendezvous(blueprint, index, port)


def processes(blueprint: RunSpec) -> str:
    """Return the processes one agent starts: by default one per GPU of its replica."""
    said = blueprint.nproc_per_node
    return said if said.isdigit() else str(blueprint.spec.gpus_per_replica)


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
    spec, elastic = blueprint.spec, blueprint.elastic
    backend = elastic.rdzv_backend if elastic else "c10d"
    conf = dict(elastic.rdzv_conf) if elastic else {}
    if backend == "c10d":
        conf.setdefault("last_call_timeout", str(LAST_CALL_S))
        conf.setdefault("keep_alive_interval", "1")
        conf.setdefault("keep_alive_max_attempt", str(SILENT_S))
        # On one machine every agent takes itself for the host: without this, whoever is first would be.
        conf.setdefault("is_host", "1" if index == 0 else "0")
    host = elastic.rdzv_host if elastic else ""
    meeting_port = elastic.rdzv_port if elastic and elastic.rdzv_host and elastic.rdzv_port else port
    restarts = (elastic.max_restarts or 0) if elastic else 0
    return {
        # With a shared store a late agent waits for an address that nobody tells it (seen in torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ENDPOINT": f"{host or _ADDRESS}:{meeting_port}",
        "PET_RDZV_ID": (elastic.rdzv_id if elastic else "") or spec.job_id,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in conf.items()),
        "PET_NNODES": _nodes(blueprint),
        "PET_MAX_RESTARTS": str(restarts + (SPARE_RESTARTS if spec.is_elastic or elastic else 0)),
    }


def _nodes(blueprint: RunSpec) -> str:
    """Return min:max of agents: the widest bounds there are, because a running agent cannot be told others.

    An agent that was told too little would leave one that comes later waiting for ever.
    """
    spec, elastic = blueprint.spec, blueprint.elastic
    least = min(spec.min_replicas, elastic.min_replicas) if elastic else spec.min_replicas
    most = max(spec.max_replicas, elastic.max_replicas) if elastic else spec.max_replicas
    return f"{least}:{most}"
