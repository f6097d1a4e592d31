"""What the pods of agents of torch (torchrun) have, whatever the kind of their job. Pure.

Rule: agents end with their pods, in the pods' grace, however far they are, and never begin a second round with others:
voda starts all of a job anew instead. So an agent shares no store with its program, gives it the whole grace, and is
not the first process of its container, which would not heed SIGTERM while it imports torch or waits for its peers.
"""

from typing import Any, Final

from voda.cluster.kubernetes.kinds.template import Template, with_environment
from voda.kinds.pod_template import UNSHARED_STORE

_DEFAULT_GRACE_S: Final = 30
_LAST_WORDS_S: Final = 2
"""Of its grace a pod keeps for the agent, once the program was killed."""


def for_agents(template: Template) -> dict[str, Any]:
    """Return a template whose containers' agents end as voda needs it; what the user wrote stays."""
    pod = dict(template["spec"])
    if not pod.get("hostPID"):
        pod.setdefault("shareProcessNamespace", True)
    grace_s = pod.get("terminationGracePeriodSeconds")
    grace_s = grace_s if isinstance(grace_s, int) else _DEFAULT_GRACE_S
    variables = {UNSHARED_STORE: "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(grace_s - _LAST_WORDS_S, 1))}
    return with_environment({**template, "spec": pod}, variables)
