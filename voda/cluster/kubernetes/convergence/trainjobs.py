"""Changes to a JobSet that was made of a TrainJob go to the TrainJob; see kinds/trainjob.py."""

from collections.abc import Mapping
from typing import Any

from voda.cluster.kubernetes.kinds.trainjob import TrainJob
from voda.cluster.kubernetes.objects import ObjectMeta
from voda.domain.errors import ActionRefused
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import PartialObject


async def patch_trainjob(api: Api, made_of: TrainJob, body: Mapping[str, Any], made: ObjectMeta) -> None:
    """Change the TrainJob that a JobSet was made of; ActionRefused: there is none, so that nobody would follow it."""
    if await api.patch(made_of.path, {**body, "metadata": {"uid": made_of.uid}}, PartialObject) is None:
        raise ActionRefused(
            f"JobSet {made.key} is controlled by TrainJob {made_of.name}, which does not exist: delete the JobSet, or"
            " create it without that owner"
        )
