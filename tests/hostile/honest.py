"""The honest user: asks who it is and why its job stands as it does; submits, and reports; and writes down each answer.

Rule: it asks by voda.client, as programs do, and tries nothing twice.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks.served import manifest
from tests.hostile.people import Place, ask, token_of
from voda.cli.options import ServerOptions
from voda.client.connection import HttpCall
from voda.client.http import HttpClient
from voda.domain.errors import VodaError

_PAUSE_S: Final = 0.2
_JOB_S: Final = 10
_EPOCHS: Final = 3
_ENDS: Final = ("Completed", "Failed", "Canceled")


class Deed(Struct, frozen=True, kw_only=True):
    """One request, and what came of it."""

    what: str
    took_s: float
    began_at: float = 0.0
    """By the clock of `time.perf_counter`."""
    job_id: str = ""
    epoch: int = 0
    error: str = ""
    """Empty: it was acknowledged."""


class Honest:
    """One user's day."""

    def __init__(self, place: Place, journal: int) -> None:
        self._place = place
        self._journal = open(journal, "ab", buffering=0)  # noqa: SIM115 - as long as the process
        self._client = HttpClient(ServerOptions(server=f"unix://{place.socket}"))
        self._chance: Random = place.chance("honest")
        self._job_id = ""
        self._submitted = 0

    def live(self) -> None:
        """Ask, and work, until the place closes."""
        # The first to ask waits for what others find done.
        self._client.get("/whoami")
        working = threading.Thread(target=self._work)
        working.start()
        while self._place.is_open():
            self._do("whoami", HttpCall(path="/whoami"))
            if self._job_id and self._chance.random() < 0.5:
                self._do("explain", HttpCall(path=f"/jobs/@{self._job_id}/explain"))
            time.sleep(self._chance.uniform(0, 2 * _PAUSE_S))
        working.join()

    def _work(self) -> None:
        while self._place.is_open():
            if not self._job_id or self._has_ended():
                self._submit()
            time.sleep(_PAUSE_S)

    def _submit(self) -> None:
        self._submitted += 1
        script = f'echo "$VODA_JOB_TOKEN"; sleep {_JOB_S}'
        body = manifest(f"honest-{self._submitted}", script)
        body["metadata"]["annotations"] |= {"voda.dev/priority": "1000", "voda.dev/epochs": str(_EPOCHS)}
        call = HttpCall(
            method="POST",
            path="/jobs",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", "Idempotency-Key": f"honest-{self._submitted}"},
        )
        if (said := self._do("submit", call)) is not None:
            self._job_id = str(msgspec.json.decode(said)["job"]["job_id"])
            self._note(Deed(what="submitted", took_s=0.0, job_id=self._job_id))
            self._report()

    def _report(self) -> None:
        """Report all epochs of the job with its own token, once it has printed that."""
        if not (token := token_of(self._place, self._job_id)):
            return
        for epoch in range(1, _EPOCHS + 1):
            began, error = time.perf_counter(), ""
            body = {"epoch": epoch, "epoch_time_s": 1.0, "metrics": {"loss": 1.0 / epoch}}
            status, said = ask(self._place, "POST", f"/jobs/@{self._job_id}/progress", body, token=token)
            if status != 204:
                error = f"{status} {said}"
            took_s = time.perf_counter() - began
            self._note(Deed(what="report", took_s=took_s, job_id=self._job_id, epoch=epoch, error=error))

    def _has_ended(self) -> bool:
        said = self._do("get", HttpCall(path=f"/jobs/@{self._job_id}"))
        return said is not None and msgspec.json.decode(said)["phase"] in _ENDS

    def _do(self, what: str, call: HttpCall) -> bytes | None:
        began, error, body = time.perf_counter(), "", None
        try:
            body = self._client.ask(call).body
        except VodaError as raised:
            error = f"{type(raised).__name__}: {raised}"
        took_s = time.perf_counter() - began
        self._note(Deed(what=what, took_s=took_s, began_at=began, job_id=self._job_id, error=error))
        return body

    def _note(self, deed: Deed) -> None:
        self._journal.write(msgspec.json.encode(deed) + b"\n")


def deeds_of(journal: Path) -> list[Deed]:
    """Return what an honest user wrote down; a line that was cut off is left out."""
    deeds = []
    for line in journal.read_bytes().splitlines():
        with suppress(msgspec.DecodeError):
            deeds.append(msgspec.json.decode(line, type=Deed))
    return deeds
