"""Pools with virtual clusters in which jobs share GPUs: states that go on as a cluster would make them."""

from collections.abc import Mapping

from msgspec.structs import replace

from tests.builders import a_node
from tests.unit.planner.virtual_clusters.pools import a_pool, reached, submitted
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.job import JobSpec
from voda.domain.plan import Plan
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState

GPU = GpuDevice(memory_mib=16_000)


def a_sharing_pool(
    quotas: Mapping[str, Mapping[str, int]], *, gpus: Mapping[str, int], **fields: object
) -> ClusterState:
    """Return a pool without jobs; `gpus`: node -> how many it has to share."""
    nodes = [a_node(name, gpus=count, devices=(GPU,) * count) for name, count in gpus.items()]
    state = a_pool(quotas, nodes=nodes, **fields)  # type: ignore[arg-type]
    return replace(state, shares={node.name: SharingNode(devices=node.devices) for node in nodes})


def shared(
    state: ClusterState, job_id: str, cluster: str, milli: int, *, memory_mib: int = 0, **fields: object
) -> ClusterState:
    """Return the state with one more job that asks for a part of a GPU, submitted last."""
    request = GpuRequest(milli=milli, memory_mib=memory_mib)
    return submitted(state, job_id, cluster, share=request, gpus_per_replica=Gpus(0), **fields)


def mates(plan: Plan, specs: Mapping[str, JobSpec], job_id: str) -> frozenset[str]:
    """Return the jobs with which one shares its GPU by the plan."""
    place = plan.placement[job_id], plan.devices[job_id]
    return frozenset(
        other
        for other, nodes in plan.placement.items()
        if other != job_id and specs[other].share is not None and (nodes, plan.devices[other]) == place
    )


def carried_out(state: ClusterState) -> ClusterState:
    """Return the state once all have what the plan gives them, and the GPUs' account with it."""
    specs = {job_id: job.spec for job_id, job in state.jobs.items()}
    accounts = {name: _kept(state, name, account) for name, account in state.shares.items()}
    for job_id, nodes in state.plan.placement.items():
        spec = specs.get(job_id)
        account = accounts[nodes[0]]
        if spec is None or spec.share is None or job_id in account.pods:
            continue
        beside = mates(state.plan, specs, job_id) & account.pods.keys()
        gpus = {_gpu(account.pods[mate]) for mate in beside}
        used = {_gpu(pod) for pod in account.pods.values()}
        gpu = min(gpus) if gpus else next(gpu for gpu in range(len(account.devices)) if gpu not in used)
        containers = {"share": ContainerGpus(gpus=(gpu,), request=spec.share)}
        assert not account.refusal(containers), "no GPU gives more than it has"
        account.pods[job_id] = PodShares(pod=f"default/{job_id}", containers=containers, assigned_at=0.0)
    nodes_now = {
        name: replace(node, foreign_gpus=Gpus(accounts[name].used_gpus() if name in accounts else 0))
        for name, node in state.nodes.items()
    }
    return reached(replace(state, shares=accounts, nodes=nodes_now, outlived={}))


def _kept(state: ClusterState, name: str, account: SharingNode) -> SharingNode:
    planned = state.plan.placement
    pods = {uid: pod for uid, pod in account.pods.items() if uid in state.jobs and planned.get(uid) == (name,)}
    return SharingNode(devices=account.devices, pods=pods)


def _gpu(pod: PodShares) -> int:
    return next(iter(pod.containers.values())).gpus[0]
