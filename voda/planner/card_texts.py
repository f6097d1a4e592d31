"""Which part of which card jobs have, and beside whom, in words; each account of a node is read once."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from functools import cached_property

from voda.domain.shares import SharingNode
from voda.events.event_text import shares_text


def card_text(shares: Mapping[str, SharingNode], job_id: str) -> str:
    """Return which part of which card a job has, `250 milli of card 0 of n1, beside ...`; empty: none."""
    return next(filter(None, (_NodeTexts(name, account).of(job_id) for name, account in shares.items())), "")


class CardTexts:
    """The sentences of many jobs."""

    def __init__(self, shares: Mapping[str, SharingNode]) -> None:
        self._nodes = {name: _NodeTexts(name, account) for name, account in shares.items()}

    def of(self, node: str, job_id: str) -> str:
        """Return which part of which card of a node a job has; empty: none."""
        return self._nodes[node].of(job_id) if node in self._nodes else ""


class _NodeTexts:
    def __init__(self, node: str, account: SharingNode) -> None:
        self._node = node
        self._pods = account.pods

    def of(self, job_id: str) -> str:
        if job_id not in self._pods:
            return ""
        cards = {card for share in self._pods[job_id].containers.values() for card in share.cards}
        others = [f"{self._pods[uid].pod} ({self._texts[uid]})" for uid in self._on(cards) if uid != job_id]
        beside = f", beside {', '.join(others)}" if others else ""
        return f"{self._texts[job_id]} of {self._node}{beside}"

    def _on(self, cards: Set[int]) -> Iterable[str]:
        """Return the pods that have parts of cards, in the order of the account."""
        if len(cards) == 1:
            return self._by_card[min(cards)]
        return [uid for uid in self._pods if any(uid in self._by_card[card] for card in cards)]

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {uid: shares_text(pod.containers) for uid, pod in self._pods.items()}

    @cached_property
    def _by_card(self) -> Mapping[int, Mapping[str, None]]:
        """Card -> the pods that have parts of it, each once."""
        pods = defaultdict[int, dict[str, None]](dict)
        for uid, pod in self._pods.items():
            for share in pod.containers.values():
                for card in share.cards:
                    pods[card][uid] = None
        return pods
