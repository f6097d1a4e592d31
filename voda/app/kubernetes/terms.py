"""The settings file in the words of those who are set by it.

Rule: only translated; what cannot be meant was refused when the file was read.
"""

from voda.app.election import Terms
from voda.app.kubernetes.options import ClusterSettings, LeaderSettings
from voda.cluster.kubernetes.kinds.base import Site
from voda.cluster.kubernetes.nodes import PoolRule


def rule(cluster: ClusterSettings) -> PoolRule:
    """Return which nodes are of which pool."""
    return PoolRule(
        label=cluster.pool_label,
        resource=cluster.gpu_resource,
        default_pool=cluster.default_pool,
        tolerated_taints=cluster.tolerated_taints,
    )


def shape(cluster: ClusterSettings) -> Site:
    """Return what of the cluster manifests have to fit."""
    return Site(gpu_resource=cluster.gpu_resource, tolerated_taints=cluster.tolerated_taints)


def terms(leader: LeaderSettings) -> Terms:
    """Return the spans of the election."""
    return Terms(duration_s=leader.lease_seconds, renew_deadline_s=leader.renew_seconds, retry_s=leader.retry_seconds)
