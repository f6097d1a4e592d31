"""One torture as it goes on: everything starts, chaos, everything starts again, and quiet until all jobs have ended.

Rule: every wait has a deadline; what is not well long after the last ill is a finding, or the torture's own end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.torture.chaos import Chaos, Tally
from tests.torture.journal import now
from tests.torture.process import Voda
from tests.torture.programs import Clients, admin_token
from tests.torture.servers import Servers
from tests.torture.unended import traces

_READY_S = 180.0
_CALM_S = 45.0
_QUIET_S = 300.0
_CLIENTS_S = 150.0
_END_S = 90.0
_ANSWER_S = 5.0
_POLL_S = 0.2
_RATELIMIT_S = 0.5
_MOST_TOLD = 3
_ODD_ENDS = 3
"""After so many there is no use in starting it again."""


class Scene:
    """voda, servers and clients."""

    def __init__(
        self, folder: Path, servers: Servers, voda: Voda, session: aiohttp.ClientSession, *, seed: int
    ) -> None:
        self._folder = folder
        self._servers = servers
        self._voda = voda
        self._session = session
        self._seed = seed
        self._headers = {"Authorization": f"Bearer {admin_token(folder)}"}

    async def play(
        self, *, kills: int, seconds: float | None, told: Callable[[Tally], None]
    ) -> tuple[Tally, list[str]]:
        """Let everything happen; return what was done, and what voda did that it should not have.

        Args:
            kills: of voda.
            seconds: after that long chaos ends, however few kills there were.
            told: called as chaos goes on.

        Raises:
            RuntimeError: it cannot go on, such as with a voda that does not start any more.
        """
        self._voda.start()
        await self._until_ready()
        await self._settle()
        chaos = Chaos(
            self._voda,
            self._servers.ills,
            seed=self._seed,
            story=self._folder / "chaos.jsonl",
            session=self._session,
        )
        until = now() + (seconds or float("inf"))
        async with self._clients():
            await chaos.run(kills=kills, until=until, calm=self._calm, told=told)
            await self._restart_everything()
            await self._until_ready()
        live = await self._until_quiet()
        trouble = await self._unended(live) if live else []
        await self._voda.end(_END_S)
        chaos.tally.tries_again = self._voda.ends_to_try_again
        return chaos.tally, trouble + self._voda.odd_ends

    async def _settle(self) -> None:
        """Let plans follow each other quickly, with many chances to kill somebody between them, and users give any
        priority, by which a change is known.
        """
        url = f"{self._voda.url}/api/v1/pools/default/settings"
        wish = {"ratelimit_s": _RATELIMIT_S, "most_user_priority": 10**9}
        timeout = aiohttp.ClientTimeout(total=_READY_S)
        async with self._session.patch(url, json=wish, headers=self._headers, timeout=timeout) as answer:
            answer.raise_for_status()

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[None]:
        clients = await asyncio.to_thread(Clients, self._folder, self._voda.url, seed=self._seed)
        try:
            yield
            await asyncio.to_thread(clients.end, _CLIENTS_S)
        finally:
            clients.kill()

    async def _restart_everything(self) -> None:
        await self._voda.kill()
        if self._servers.restart is not None:
            await self._servers.restart()
        self._voda.start()

    async def _until_ready(self) -> None:
        """Wait until voda is ready; where it asks to be started again, it is.

        Raises:
            RuntimeError: it is not ready in time.
        """
        late, voda = now() + _READY_S, self._voda
        while not await voda.is_ready(self._session):
            if now() > late or len(voda.odd_ends) >= _ODD_ENDS:
                why = "; ".join(voda.odd_ends[-1:]) or f"{_READY_S:g} s after everything was well again"
                raise RuntimeError(f"voda is not ready: {why}")
            voda.start()
            await asyncio.sleep(_POLL_S)

    async def _calm(self) -> None:
        """Return once there is a new plan, or after a while: there may be nothing to decide."""
        late, before, latest = now() + _CALM_S, await self._plans(), None
        while now() < late and (before is None or latest is None or latest <= before):
            await asyncio.sleep(_POLL_S)
            self._voda.start()
            latest = await self._plans()
            before = latest if before is None else before

    async def _plans(self) -> int | None:
        """Return how many plans there were; None while nobody says."""
        found = await self._get("/api/v1/pools/default/plan")
        return None if found is None else int(found["number"])

    async def _until_quiet(self) -> int:
        """Wait until all jobs ended; return how many have not."""
        late, live = now() + _QUIET_S, -1
        while now() < late and live:
            await asyncio.sleep(_POLL_S)
            self._voda.start()
            found = await self._get("/api/v1/jobs?phase=live&limit=1")
            live = found["total"] if found is not None else live
        return live

    async def _unended(self, live: int) -> list[str]:
        """Say how many jobs have not ended, and of some what can be seen."""
        told = [f"{live} jobs have not ended {_QUIET_S:g} s after everything was well again"]
        found = await self._get(f"/api/v1/jobs?phase=live&limit={_MOST_TOLD}")
        return told + [self._story(job) for job in found["items"]] if found is not None else told

    def _story(self, job: Mapping[str, Any]) -> str:
        seen = traces(self._folder / "home", job["job_id"])
        return f"{job['job_id']} is {job['phase']} on {job['replicas']} ({job['reason']}): {seen}"

    async def _get(self, path: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        try:
            async with self._session.get(self._voda.url + path, headers=self._headers, timeout=timeout) as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
