"""What a service makes of manifests, beyond what each says by itself: its cluster, its users and its limits.

Rule: the composition root says it, for a machine or for Kubernetes; submitting a job reads the same with both.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from voda.domain.cells import CellsSpec
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ACCELERATOR, ParsedManifest

QuotaShortage = Callable[[CellsSpec, Mapping[str, Node], JobSpec], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """Which jobs there may be, and what becomes of their manifests."""

    pools: Sequence[str]
    """Pools that take jobs; the first is the default."""
    pool_label: str = ACCELERATOR
    """Label of nodes: a job that selects nodes by it goes to the pool of that name."""
    jobs_per_user: int = 1_000
    """Live jobs; admins may have more."""
    warnings: Callable[[ParsedManifest], Sequence[FieldWarning]] = lambda _parsed: ()
    """Returns the fields of a manifest that the cluster ignores or changes; raises InvalidField where it cannot run."""
    counted: Callable[[ParsedManifest], ParsedManifest] = lambda parsed: parsed
    """Returns a manifest with the GPUs that its claims ask for; InvalidField: that cannot be known."""
    account: Callable[[str], Awaitable[object]] = lambda _user: sleep(0)
    """Raises InvalidInput where jobs run as their users and this one has no account."""
    refuse_unusable: Callable[[ParsedManifest], Awaitable[None]] = lambda _parsed: sleep(0)
    """Raises InvalidField where the job's user may not execute what the manifest says it runs with."""
    quota_shortage: QuotaShortage = lambda _cells, _nodes, _spec: ""
    """Returns why no guarantee of a virtual cluster ever holds the minimum of a job, one sentence; empty: one does."""
