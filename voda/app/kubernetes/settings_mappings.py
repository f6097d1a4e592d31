"""The settings file in the words of those who are set by it.

Rule: only translated; what cannot be meant was refused when the file was read.
"""

from voda.app.election import LOG_TIMEOUTS, ElectionTimeouts
from voda.app.kubernetes.options import ClusterSettings, LeaderSettings
from voda.cluster.kubernetes.kinds.base import Site
from voda.cluster.kubernetes.state.nodes import PoolRule


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


def terms(leader: LeaderSettings) -> ElectionTimeouts:
    """Return the spans of the election.

    Raises:
        ValueError: they let two lead.
    """
    usual = LOG_TIMEOUTS if leader.election == "log" else ElectionTimeouts()
    lease_s, renew_s, retry_s = leader.lease_seconds, leader.renew_seconds, leader.retry_seconds
    return ElectionTimeouts(
        duration_s=usual.duration_s if lease_s is None else lease_s,
        renew_deadline_s=usual.renew_deadline_s if renew_s is None else renew_s,
        retry_s=usual.retry_s if retry_s is None else retry_s,
    )
