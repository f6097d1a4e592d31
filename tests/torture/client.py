"""Clients of a torture, a process of several: each asks one thing after the other, and writes down what it was told.

python -m tests.torture.client SETTINGS.json (see Settings); SIGTERM ends it once no outcome is open that can be known.

Rule: an operation whose outcome is not known is tried again, with the same key and the same wish.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from tests.torture.evidence import digest
from tests.torture.journal import Journal
from tests.torture.workload import a_job
from voda.domain.rng import rng_at

_ANSWER_S = 6.0
_POSITION = "Voda-Position"
_ENDED = ("Completed", "Failed", "Canceled")
_SHARED_NAMES = 4
"""Names that all clients fight for."""
_MOST_LIVE = 3
_REMEMBERED = 20
"""Jobs of its own that a client goes on asking for."""
_UNKNOWN = frozenset({408, 429, 500, 502, 503, 504, 507})
"""Answers after which the same is asked again."""


class Settings(Struct, frozen=True, kw_only=True):
    """What the process of clients is told."""

    url: str
    tokens: Mapping[str, str]
    """User -> token; a client per user."""
    journals: str
    seed: int
    pause_s: float = 0.3
    """Between operations, on average."""
    give_up_s: float = 90.0
    """After that long without an answer the outcome stays unknown."""


class Client:
    """One user who does one thing after the other."""

    def __init__(self, user: str, token: str, settings: Settings, session: aiohttp.ClientSession) -> None:
        self.user = user
        self._settings = settings
        self._session = session
        self._headers = {"Authorization": f"Bearer {token}"}
        self._journal = Journal(Path(settings.journals) / f"{user}.jsonl")
        self._chance: Random = rng_at(settings.seed, user)
        self._operations = 0
        self._jobs: dict[str, bool] = {}
        """Jobs of its own -> whether it is live, as last seen."""
        self._seen = 0
        """Highest position that it was told."""
        self._page = 0

    async def run(self, ends: asyncio.Event) -> None:
        """Do one thing after the other until told to end."""
        while not ends.is_set():
            await self._next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0, 2 * self._settings.pause_s)):
                    await ends.wait()
        self._journal.close()

    async def _next(self) -> None:
        live = [job for job, is_live in self._jobs.items() if is_live]
        choice = self._chance.random()
        if not live or (choice < 0.3 and len(live) < _MOST_LIVE):
            await self._submit()
        elif choice < 0.5:
            await self._change(self._chance.choice(live))
        elif choice < 0.58:
            await self._delete(self._chance.choice(live))
        elif choice < 0.85:
            await self._read(self._chance.choice(list(self._jobs)))
        else:
            await self._read_page()

    async def _submit(self) -> None:
        self._operations += 1
        own = f"{self.user}-{self._operations}"
        name = own if self._chance.random() < 0.7 else f"shared-{self._chance.randrange(_SHARED_NAMES)}"
        manifest = a_job(name, self._chance)
        wish = {"does": "submit", "user": self.user, "name": name, "key": f"key-{own}", "manifest": digest(manifest)}
        headers = {"Idempotency-Key": f"key-{own}"}
        answer = await self._ask(wish, "POST", "/api/v1/jobs", body=manifest, headers=headers)
        if answer is not None:
            self._note(answer["job"])

    async def _change(self, job_id: str) -> None:
        self._operations += 1
        # Of this operation alone, so that the log can be searched for it.
        priority = self._operations * 100 + self._chance.randrange(100)
        wish = {"does": "change", "job_id": job_id, "priority": priority}
        self._note(await self._ask(wish, "PATCH", f"/api/v1/jobs/@{job_id}", body={"priority": priority}), job_id)

    async def _delete(self, job_id: str) -> None:
        self._operations += 1
        reason = f"{self.user} operation {self._operations}"
        wish = {"does": "delete", "job_id": job_id, "reason": reason}
        self._note(await self._ask(wish, "DELETE", f"/api/v1/jobs/@{job_id}", query={"reason": reason}), job_id)

    async def _read(self, job_id: str) -> None:
        self._operations += 1
        # A voda that was started again has to read up to there first.
        wish = {"does": "read", "job_id": job_id, "after": self._seen}
        self._note(await self._ask(wish, "GET", f"/api/v1/jobs/@{job_id}", query={"after": str(self._seen)}), job_id)

    async def _read_page(self) -> None:
        self._operations += 1
        wish = {"does": "page", "after": self._page}
        answer = await self._ask(wish, "GET", "/api/v1/events", query={"after": str(self._page), "limit": "100"})
        if answer is not None:
            self._page = answer["last_position"]

    async def _ask(  # noqa: PLR0913 - what a request is made of
        self,
        wish: Mapping[str, Any],
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Ask until the outcome is known; return the answer, None where it is a refusal."""
        operation, give_up_at = self._operations, asyncio.get_running_loop().time() + self._settings.give_up_s
        attempt = 0
        while asyncio.get_running_loop().time() < give_up_at:
            self._journal.asked(operation, attempt, **wish)
            try:
                request = self._session.request(
                    method,
                    self._settings.url + path,
                    params=query,
                    json=body,
                    headers={**self._headers, **(headers or {})},
                )
                async with request as response:
                    status, said = response.status, await response.read()
                    position = int(response.headers.get(_POSITION, 0))
                answer = msgspec.json.decode(said)
            except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
                self._journal.answered(operation, attempt, "unknown", error=f"{type(error).__name__}: {error}"[:200])
            else:
                if status < 300:
                    told = {**_told(answer), "position": position}
                    self._journal.answered(operation, attempt, "acknowledged", status=status, **told)
                    self._seen = max(self._seen, position)
                    return answer
                if status not in _UNKNOWN:
                    self._journal.answered(operation, attempt, "refused", status=status, detail=answer.get("detail"))
                    return None
                self._journal.answered(operation, attempt, "unknown", status=status, detail=answer.get("detail"))
            attempt += 1
            await asyncio.sleep(self._chance.uniform(0.1, 0.6))
        return None

    def _note(self, job: Any, job_id: str = "") -> None:
        """Remember a job as it was shown; one that was refused has ended, or is somebody else's."""
        if job is not None:
            self._jobs[job["job_id"]] = job["phase"] not in _ENDED and not job["is_canceling"]
        elif job_id in self._jobs:
            self._jobs[job_id] = False
        while len(self._jobs) > _REMEMBERED:
            del self._jobs[next(iter(self._jobs))]


def _told(answer: Any) -> Mapping[str, object]:
    """Return what of an answer the checker compares with the log."""
    if "items" in answer:
        events = [[event["position"], event["event_id"]] for event in answer["items"]]
        return {"events": events, "last_position": answer["last_position"]}
    job = answer.get("job", answer)
    told = {name: job[name] for name in ("job_id", "phase", "priority", "is_canceling")}
    return {**told, "revision": int(job["revision"])}


async def _run(settings: Settings) -> None:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session,
        asyncio.TaskGroup() as group,
    ):
        for user, token in settings.tokens.items():
            group.create_task(Client(user, token, settings, session).run(ends))


if __name__ == "__main__":
    asyncio.run(_run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)))
