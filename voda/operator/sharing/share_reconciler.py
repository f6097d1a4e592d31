"""Keeps the accounts of nodes as the cluster is: compares each with what a source says, and puts right what differs.

There are two sources: pods that ask for extended resources, whose annotations name GPUs (`annotated_shares`), and
claims that were given GPUs (`claims.claimed_shares`). Level-triggered: a look at a node takes in all there is about it.
Rules: facts are appended at the version of the account that they follow from; a share is taken from a pod that is not
there, or has no node, only once the API server has said so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec.structs import replace

from voda.application.journal import Journal
from voda.concurrency import log_unexpected
from voda.domain.errors import (
    ActionRefused,
    ChangedMeanwhile,
    NotFound,
    StoreNotWritable,
    TransientError,
    VersionConflict,
)
from voda.domain.gpus import ContainerGpus
from voda.domain.shares import SharingNode
from voda.events.types import ShareFact
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.operator.sharing.share_corrections import SeenShares, StaleShare, node_facts
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating import GpuChooser, Rater

_log = logging.getLogger(__name__)

_NODES_AT_ONCE: Final = 20
"""Then others get a turn: kube-scheduler waits for answers."""


class ShareSource(Protocol):
    """What one way of asking for GPUs says of the cluster."""

    @property
    def actor(self) -> str:
        """Whose facts these are."""

    def follows(self, node: str, account: SharingNode) -> bool:
        """Say whether it knows what pods have of a node.

        Raises:
            ChangedMeanwhile: not yet.
        """

    def seen(self, node: str, account: SharingNode) -> SeenShares:
        """Return what pods have of a node; `account` is what the log has of it."""

    async def is_stale(self, share: StaleShare) -> bool:
        """Say whether a share may be taken away that the mirror alone is not enough for."""


@dataclass(kw_only=True)
class ShareReconciler:
    """Runs while this replica leads."""

    journal: Journal
    source: ShareSource
    rater: Rater
    _refused: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False)
    """Node -> uids of its pods that cannot be recorded -> why not, as it was logged."""

    async def correct(self, nodes: Collection[str]) -> Collection[str]:
        """Put nodes right, one after the other; return those where it failed, which are to be looked at again."""
        failed = []
        for number, node in enumerate(sorted(nodes)):
            if number % _NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not await succeeds(self._correct(node), node):
                failed.append(node)
        return failed

    async def _correct(self, node: str) -> None:
        found = self.accounts.nodes.get(node)
        if found is None or not self.source.follows(node, found):
            self._refused.pop(node, None)
            return
        # While the API server is asked, accounts and mirror go on.
        account = found.copy()
        seen = self.source.seen(node, account)
        stale = [each for each in seen.stale if each.certainty == "certain" or await self.source.is_stale(each)]
        wrong = node_facts(node, account, replace(seen, stale=stale), self._choose)
        self._tell_refused(node, wrong.refused)
        if wrong.facts:
            await record_shares(self.journal, *wrong.facts, actor=self.source.actor, version=account.version)

    def _choose(self, account: SharingNode, pod: ExtenderPod) -> Mapping[str, ContainerGpus] | str:
        return ShareVerbs(GpuChooser(self.rater), {"": account}, {}).gpus(pod, "")

    def _tell_refused(self, node: str, refused: Mapping[str, str]) -> None:
        known = self._refused.pop(node, {})
        for uid, reason in refused.items():
            if known.get(uid) != reason:
                _log.warning("shares of pod not recorded node=%s uid=%s reason=%s", node, uid, reason)
        if refused:
            self._refused[node] = refused

    @property
    def accounts(self) -> ShareAccounts:
        """Return those of the log."""
        return self.journal.view.cluster.shares


async def record_shares(journal: Journal, *facts: ShareFact, actor: str, version: int) -> None:
    """Append facts of one node.

    Args:
        journal: the log.
        facts: of one node, at least one.
        actor: whose they are.
        version: of the account that they follow from; 0: it is new, or was forgotten while its node was gone.

    Raises:
        VersionConflict: somebody else has appended since.
        StoreUnavailable: the log does not answer.
        StoreNotWritable: the log cannot be written.
    """
    if not version:
        head = await journal.store.head(facts[0].stream)
        await journal.catch_up()
        account = journal.view.cluster.shares.nodes.get(facts[0].node)
        if account is not None and account.version:
            raise VersionConflict(f"stream {facts[0].stream}: others have appended to it meanwhile")
        version = head.version
    await journal.record(*facts, actor=actor, version=version)


def version_of(accounts: ShareAccounts, node: str) -> int:
    """Return the version of a node's account.

    Raises:
        VersionConflict: it was forgotten meanwhile, since the node is gone and nobody has any of it.
    """
    if (account := accounts.nodes.get(node)) is None:
        raise VersionConflict(f"node {node} is gone, and nobody has any of its GPUs: decide again")
    return account.version


async def succeeds(work: Awaitable[object], what: str) -> bool:
    """Do something that may fail because others were faster, or do not answer; say whether it is done.

    What is unforeseen is logged: it concerns one pod or node, and the others go on.
    """
    is_done = False
    with log_unexpected("sharing GPUs", what):
        try:
            await work
            is_done = True
        except (VersionConflict, ChangedMeanwhile, NotFound):
            pass
        except (TransientError, ActionRefused, StoreNotWritable) as error:
            _log.warning("shares wait about=%s reason=%s", what, error)
    return is_done
