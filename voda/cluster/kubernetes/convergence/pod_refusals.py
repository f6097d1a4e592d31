"""Why the API server refuses the pods of a job, such as a quota: the job's controller says it in Events alone.

Rule: what changes with every attempt (names of pods, what a quota has used by now) is left out, so that the same
refusal is the same sentence.
"""

import re
from typing import Final

from msgspec import Struct

from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import ObjectName
from voda.kubernetes_client.paths import api_path

_LONGEST: Final = 300
_PREFIX: Final = re.compile(r"^Error creating: |\bpods? \"[^\"]*\" is forbidden: ")
_USED: Final = re.compile(r", used: .*?(?=, limited: |$)")


class _RefusalEvent(Struct, frozen=True, rename="camel"):
    metadata: ObjectName
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


async def pod_refusal(api: Api, owner: ObjectName) -> str:
    """Return the last reason why pods of an object could not be made, one sentence; empty where no Event tells one."""
    selection = {"fieldSelector": f"involvedObject.uid={owner.uid},type=Warning"}
    found = await api.list(api_path("v1", "events", owner.namespace), _RefusalEvent, selection)
    refused = [each for each in found.items if each.reason.startswith("FailedCreate")]
    latest = max(refused, key=lambda each: each.last_timestamp or "", default=None)
    return refusal_text(latest.message) if latest is not None else ""


def refusal_text(message: str) -> str:
    """Return what an Event says of a pod that could not be made, without what changes with every attempt."""
    line = "".join(char for char in message.partition("\n")[0] if char.isprintable())
    said = _USED.sub("", _PREFIX.sub("", _PREFIX.sub("", line))).strip()
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
