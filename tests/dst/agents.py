"""What jobs' own processes do: report each epoch to the API, as voda.report does.

Rule: a report is repeated until it is answered, with the same report id; nobody waits for it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from tests.dst.door import Unanswered
from tests.service import Answer

_TRIES: Final = 6
_AGAIN_S: Final = 5.0


class Asked(Protocol):
    """Who answers."""

    loop: Any

    async def ask(self, method: str, path: str, *, body: Any) -> Answer:
        """See World.ask."""
        ...


class Agents:
    """The reporters of all jobs."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._reports: dict[int, asyncio.Task[None]] = {}
        self._number = 0

    def report(self, job_id: str, epochs: int, workers: int, epoch_s: float | None) -> None:
        """Begin to report that a job has finished so many epochs in all."""
        self._number += 1
        number, body = self._number, {"epoch": epochs, "workers": workers, "report_id": f"{job_id}-{epochs}"}
        if epoch_s is not None:
            body["epoch_time_s"] = epoch_s
        task = self._asked.loop.create_task(self._report(job_id, body))
        self._reports[number] = task
        task.add_done_callback(lambda _: self._reports.pop(number))

    async def _report(self, job_id: str, body: Mapping[str, Any]) -> None:
        for _ in range(_TRIES):
            try:
                answer = await self._asked.ask("POST", f"/api/v1/jobs/{job_id}/progress", body=body)
            except Unanswered:
                pass
            else:
                # A replica that lags behind does not know every job yet.
                if answer.status not in (404, 503, 507):
                    return
            await asyncio.sleep(_AGAIN_S)
