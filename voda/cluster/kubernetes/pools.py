"""The pools of one Kubernetes cluster, over one mirror and one inventory that they share.

Rule: every replica runs the mirror; only the leader runs the leader loop.
"""

from collections.abc import Sequence

from voda.cluster.kubernetes.cluster import KubernetesCluster
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.leader_loop import LeaderLoop
from voda.cluster.kubernetes.mirror import ClusterMirror
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.kubernetes_client.api import Api


class KubernetesPools:
    """All pools of a cluster; used on one event loop."""

    def __init__(self, api: Api, setup: KubernetesSetup) -> None:
        self.inventory = Inventory(setup.rule, setup.log.live_job, setup.log.ended_job, adopted=setup.log.adopted_job)
        self.leader = LeaderLoop(api, self.inventory, setup, lambda pool, fact: self.cluster(pool).publish(fact))
        self.mirror = ClusterMirror(api, self.inventory, setup, put_object=self._put_object, changed=self.leader.wake)
        self._setup = setup
        self._clusters: dict[str, KubernetesCluster] = {}

    def names(self) -> Sequence[str]:
        """Return the pools: of nodes, of settings, and of jobs that wait for nodes."""
        return sorted({*self._setup.pools, *self.inventory.stock.pools(), *self._setup.log.job_pools()})

    def cluster(self, pool: str) -> KubernetesCluster:
        """Return the cluster of a pool, the same one each time."""
        if pool not in self._clusters:
            self._clusters[pool] = KubernetesCluster(
                pool,
                self.inventory,
                self.leader.observations,
                self.leader.actuator,
                self.mirror.missing.fetch,
                telemetry=self._setup.telemetry,
            )
        return self._clusters[pool]

    def _put_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self.leader.observations.object_gone(KubeJob(kind, before))
            self.inventory.put_object(before.metadata.uid, kind, None)
        if now is not None:
            self.mirror.missing.watched(now.metadata.uid)
            self.inventory.put_object(now.metadata.uid, kind, now)
