"""One torture as it goes on: everything starts, chaos, everything starts again, and quiet until all jobs have ended.

Rule: every wait has a deadline; what is not well long after the last ill is a finding, or the torture's own end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.torture.chaos import Chaos, Tally
from tests.torture.journal import now
from tests.torture.programs import Clients, admin_token
from tests.torture.replica import Replica
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
"""Of one replica: after so many there is no use in starting it again."""


class Scene:
    """Replicas, servers and clients."""

    def __init__(
        self, folder: Path, servers: Servers, replicas: Sequence[Replica], session: aiohttp.ClientSession, *, seed: int
    ) -> None:
        self._folder = folder
        self._servers = servers
        self._replicas = replicas
        self._session = session
        self._seed = seed
        self._headers = {"Authorization": f"Bearer {admin_token(folder)}"}

    async def play(
        self, *, kills: int, seconds: float | None, told: Callable[[Tally], None]
    ) -> tuple[Tally, Sequence[str]]:
        """Let everything happen; return what was done, and what replicas did that they should not have.

        Args:
            kills: of replicas.
            seconds: after that long chaos ends, however few kills there were.
            told: called as chaos goes on.

        Raises:
            RuntimeError: it cannot go on, such as with a replica that does not start any more.
        """
        for replica in self._replicas:
            replica.start()
        await self._until_ready()
        await self._settle()
        chaos = Chaos(
            self._replicas,
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
        for replica in self._replicas:
            await replica.end(_END_S)
            trouble += replica.odd_ends
        chaos.tally.tries_again = sum(replica.ends_to_try_again for replica in self._replicas)
        return chaos.tally, trouble

    async def _settle(self) -> None:
        """Let plans follow each other quickly: there are many chances to kill somebody between them."""
        url, wish = f"{self._replicas[0].url}/api/v1/pools/default/settings", {"ratelimit_s": _RATELIMIT_S}
        timeout = aiohttp.ClientTimeout(total=_READY_S)
        async with self._session.patch(url, json=wish, headers=self._headers, timeout=timeout) as answer:
            answer.raise_for_status()

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[None]:
        clients = await asyncio.to_thread(
            Clients, self._folder, [replica.url for replica in self._replicas], seed=self._seed
        )
        try:
            yield
            await asyncio.to_thread(clients.end, _CLIENTS_S)
        finally:
            clients.kill()

    async def _restart_everything(self) -> None:
        await asyncio.gather(*(replica.kill() for replica in self._replicas))
        if self._servers.restart is not None:
            await self._servers.restart()
        for replica in self._replicas:
            replica.start()

    async def _until_ready(self) -> None:
        """Wait until every replica is ready; one that asks to be started again is.

        Raises:
            RuntimeError: one is not ready in time.
        """
        late = now() + _READY_S
        for replica in self._replicas:
            while not await replica.is_ready(self._session):
                if now() > late or len(replica.odd_ends) >= _ODD_ENDS:
                    why = "; ".join(replica.odd_ends[-1:]) or f"{_READY_S:g} s after everything was well again"
                    raise RuntimeError(f"{replica.name} is not ready: {why}")
                replica.start()
                await asyncio.sleep(_POLL_S)

    async def _calm(self) -> None:
        """Return once there is a new plan, or after a while: there may be nothing to decide."""
        late, before, latest = now() + _CALM_S, await self._plans(), None
        while now() < late and (before is None or latest is None or latest <= before):
            await asyncio.sleep(_POLL_S)
            for replica in self._replicas:
                replica.start()
            latest = await self._plans()
            before = latest if before is None else before

    async def _plans(self) -> int | None:
        """Return how many plans there were; None while nobody says."""
        for replica in self._replicas:
            found = await self._get(replica, "/api/v1/pools/default/plan")
            if found is not None:
                return int(found["number"])
        return None

    async def _until_quiet(self) -> int:
        """Wait until all jobs ended; return how many have not."""
        late, live = now() + _QUIET_S, -1
        while now() < late and live:
            await asyncio.sleep(_POLL_S)
            for replica in self._replicas:
                replica.start()
                found = await self._get(replica, "/api/v1/jobs?phase=live&limit=1")
                live = found["total"] if found is not None else live
        return live

    async def _unended(self, live: int) -> list[str]:
        """Say how many jobs have not ended, and of some what can be seen."""
        told = [f"{live} jobs have not ended {_QUIET_S:g} s after everything was well again"]
        for replica in self._replicas:
            found = await self._get(replica, f"/api/v1/jobs?phase=live&limit={_MOST_TOLD}")
            if found is not None:
                return told + [self._story(job) for job in found["items"]]
        return told

    def _story(self, job: Mapping[str, Any]) -> str:
        seen = traces(self._folder / "home", job["job_id"])
        return f"{job['job_id']} is {job['phase']} on {job['replicas']} ({job['reason']}): {seen}"

    async def _get(self, replica: Replica, path: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        try:
            async with self._session.get(replica.url + path, headers=self._headers, timeout=timeout) as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
