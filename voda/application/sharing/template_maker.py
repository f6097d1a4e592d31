"""Makes the templates of claims that pods name by a size, where they are not there (see `sized_templates`).

kube-controller-manager makes the claims as soon as it sees the template.

Rule: level-triggered, and in memory alone; a template that is there already, whoever made it, is what pods get.
"""

from collections.abc import Iterator
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

    def due(self, now: float) -> Iterator[TemplateName]:
        """Yield the templates that are to be made now, each once."""
        wanted = {each for pod in self.pods.by_uid.values() if pod.is_active for each in self._absent(pod)}
        for each in sorted(wanted, key=lambda each: each.key):
            if self._tries.is_due(each.key, now) and not unmakeable(each, self.devices):
                self._tries.failed(each.key, now)
                yield each
        self._tries.forget_before(now - _LONGEST_S)
        self._refused = {key: reason for key, reason in self._refused.items() if self._tries.due_at(key)}

    async def make(self, template: TemplateName) -> None:
        """Make a template.

        Raises:
            ActionRefused: the API server does not take it; `obstacle` says so from now on.
        """
        body = sized_template(template.name, template.namespace, self.devices.card_classes, self.devices.shared)
        try:
            await self.binding.make_template(template.namespace, body)
        except ActionRefused as error:
            told = f"the API server refuses ResourceClaimTemplate {template.name}: {error}"
            self._refused[template.key] = told
            raise
        self._refused.pop(template.key, None)

    def obstacle(self, pod: Pod) -> str:
        """Return why one of the templates that a pod names cannot be made; empty: they can."""
        reasons = (unmakeable(each, self.devices) or self._refused.get(each.key, "") for each in self._absent(pod))
        return next(filter(None, reasons), "")

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
