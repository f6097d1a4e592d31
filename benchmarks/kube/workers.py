"""A light stand-in for mpi-operator: workers as their jobs ask for them, and no launcher, Service or ConfigMap.

Rule: for figures to which launchers add nothing but load.
"""

from typing import ClassVar

from tests.kube.client import JOBS, Object, now_text
from tests.kube.operators.base import is_suspended
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.status import set_condition


class WorkersOnly(MpiOperatorV2):
    """See the module."""

    owned: ClassVar = {JOBS: ""}

    async def reconcile(self, job: Object) -> None:
        """See Operator.reconcile."""
        status = job.setdefault("status", {})
        if not status.get("conditions"):
            set_condition(status, "Created", reason="MPIJobCreated", message="It is created.")
        suspended = is_suspended(job)
        if suspended:
            await self._delete_workers(job)
        else:
            status.setdefault("startTime", now_text())
            await self._workers(job)
        set_condition(status, "Suspended", reason="MPIJobSuspended", message="As told.", value=suspended)
        await self.write_status(job)
