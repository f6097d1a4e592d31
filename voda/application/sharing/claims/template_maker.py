"""Makes the templates of claims that pods name by a size, where they are not there (see `sized_templates`).

kube-controller-manager makes the claims as soon as it sees the template.

Rules: level-triggered, and in memory alone; a template that is there already, whoever made it, is what pods get; few
are made at once, of each namespace in turn: however many sizes one names, others do not wait for these.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from voda.backoff import Backoff
from voda.cluster.kubernetes.claim_binding import ClaimBinding
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.cluster.kubernetes.state.sharing_pods import ClaimingPods
from voda.cluster.kubernetes.state.sized_templates import missing_templates, sized_template
from voda.domain.errors import ActionRefused, InvalidInput

_FIRST_S: Final = 5.0
"""After so long a template is made again that is not to be seen: it was deleted, say, or could not be made."""
_LONGEST_S: Final = 60.0
_MOST_AT_ONCE: Final = 16


class TemplateName(Struct, frozen=True):
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(kw_only=True)
class TemplateMaker:
    """Runs while this replica leads."""

    binding: ClaimBinding
    devices: DeviceStock
    pods: ClaimingPods
    _tries: Backoff = field(default_factory=lambda: Backoff(first_s=_FIRST_S, longest_s=_LONGEST_S), init=False)
    """By key of a template."""
    _refused: dict[str, str] = field(default_factory=dict, init=False)
    """Key of a template -> why the API server refuses it."""
    _under_way: set[str] = field(default_factory=set, init=False)
    """Keys of templates that are being made."""
    _turns: dict[str, int] = field(default_factory=dict, init=False)
    """Namespace -> which of the templates that were begun was its last."""

    def due(self, now: float) -> Iterator[TemplateName]:
        """Yield the templates that are to be made now, each once; `make` is to be called with each of them."""
        if left := max(0, _MOST_AT_ONCE - len(self._under_way)):
            wanted = {each for pod in self.pods.by_uid.values() if pod.is_active for each in self._absent(pod)}
            for each in self._in_turn(wanted, now)[:left]:
                self._tries.failed(each.key, now)
                self._under_way.add(each.key)
                self._turns[each.namespace] = max(self._turns.values(), default=0) + 1
                yield each
            there = {each.namespace for each in wanted}
            self._turns = {name: turn for name, turn in self._turns.items() if name in there}
        self._tries.forget_before(now - _LONGEST_S)
        self._refused = {key: reason for key, reason in self._refused.items() if self._tries.due_at(key)}

    async def make(self, template: TemplateName) -> None:
        """Make a template.

        Raises:
            ActionRefused: the API server does not take it; `obstacle` says so from now on.
        """
        try:
            body = sized_template(template.name, template.namespace, self.devices.card_classes, self.devices.shared)
            await self.binding.make_template(template.namespace, body)
        except ActionRefused as error:
            why = f"the API server refuses ResourceClaimTemplate {template.name}: {error}"
            self._refused[template.key] = why
            raise
        finally:
            self._under_way.discard(template.key)
        self._refused.pop(template.key, None)

    def obstacle(self, pod: Pod) -> str:
        """Return why one of the templates that a pod names cannot be made; empty: they can."""
        reasons = (unmakeable(each, self.devices) or self._refused.get(each.key, "") for each in self._absent(pod))
        return next(filter(None, reasons), "")

    def _in_turn(self, wanted: Iterable[TemplateName], now: float) -> Sequence[TemplateName]:
        """Return those that may be made now: one of each namespace, the one longest without first, then the next."""
        before = Counter[str]()
        found = list[tuple[int, int, TemplateName]]()
        for each in sorted(wanted, key=lambda each: each.key):
            is_due = each.key not in self._under_way and self._tries.is_due(each.key, now)
            if is_due and not unmakeable(each, self.devices):
                found.append((before[each.namespace], self._turns.get(each.namespace, 0), each))
                before[each.namespace] += 1
        return [each for _, _, each in sorted(found, key=lambda one: one[:2])]

    def _absent(self, pod: Pod) -> Iterator[TemplateName]:
        named = (TemplateName(pod.metadata.namespace, name) for name in missing_templates(pod))
        return (each for each in named if each.key not in self.devices.templates)


def unmakeable(template: TemplateName, devices: DeviceStock) -> str:
    """Return why a template of such a name cannot be made; empty: it can."""
    try:
        sized_template(template.name, template.namespace, devices.card_classes, devices.shared)
    except InvalidInput as error:
        return str(error)
    return ""
