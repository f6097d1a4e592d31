"""What is done to voda and to servers, and when: drawn from a seed, written down as it is done.

Rule: chaos counts kills that hit a living process, and knows calm: without it nothing would ever be decided.
The same seed draws the same ills; at which step of voda's they hit is up to the machine.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from tests.torture.journal import Journal, now
from tests.torture.process import Voda
from tests.torture.servers import Ill
from voda.domain.rng import rng_at

_POLL_S = 0.05
_READY_S = 25.0
"""How long its death may wait for its being ready."""
_ODD_ENDS = 10
"""By itself: after so many there is nothing left to kill."""
_CALM_EVERY = 20
"""Kills between two calms."""


@dataclass
class Tally:
    """How much was done."""

    kills: int = 0
    """Of a voda that lived."""
    stops: int = 0
    """How often it stood still for a while."""
    ills: Counter[str] = field(default_factory=Counter)
    """What happened to servers and links, by its name."""
    tries_again: int = 0
    """Starts that voda itself gave up, to be started again: the log was out of reach."""


class Chaos:
    """Torments voda and servers until there were enough kills or the time is over."""

    def __init__(
        self,
        voda: Voda,
        ills: Sequence[Ill],
        *,
        seed: int,
        story: Path,
        session: aiohttp.ClientSession,
    ) -> None:
        self.tally = Tally()
        self._voda = voda
        self._ills = ills
        self._seed = seed
        self._story = Journal(story)
        self._session = session
        self._is_calm = False
        self._wanted, self._until = 0, 0.0

    async def run(
        self, *, kills: int, until: float, calm: Callable[[], Awaitable[None]], told: Callable[[Tally], None]
    ) -> None:
        """Go on until there were so many kills, or until an instant of the steady clock; then heal everything.

        Args:
            kills: in all.
            until: instant of journal.now(), seconds.
            calm: returns once the control plane has got somewhere.
            told: called after every kill.
        """
        self._wanted, self._until = kills, until
        async with asyncio.TaskGroup() as group:
            tormented = group.create_task(self._torment(rng_at(self._seed, "voda")))
            sick = group.create_task(self._sicken(rng_at(self._seed, "servers")))
            calms_at = _CALM_EVERY
            while not tormented.done():
                told(self.tally)
                if self.tally.kills >= calms_at:
                    self._is_calm = True
                    self._note("calm", "voda")
                    await calm()
                    self._is_calm = False
                    calms_at = self.tally.kills + _CALM_EVERY
                await asyncio.sleep(_POLL_S)
            await sick
        told(self.tally)
        self._story.close()

    @property
    def _is_over(self) -> bool:
        is_hopeless = len(self._voda.odd_ends) >= _ODD_ENDS
        return self.tally.kills >= self._wanted or now() >= self._until or is_hopeless

    async def _torment(self, chance: Random) -> None:
        voda = self._voda
        while not self._is_over:
            if not voda.is_running:
                if chance.random() < 0.2:
                    await self._pause(chance.uniform(0, 1.5))
                voda.start()
            await self._moment(chance)
            await self._calmed(voda)
            await self._strike(chance)
        voda.go_on()

    async def _strike(self, chance: Random) -> None:
        draw = chance.random()
        if not self._is_over:
            await (self._freeze(chance) if draw < 0.15 else self._kill("as it ran"))

    async def _moment(self, chance: Random) -> None:
        """Wait for the moment to strike: while it starts, as soon as it is ready, or some time later."""
        draw = chance.random()
        if draw < 0.3:
            await self._pause(chance.uniform(0, 1.5))
            return
        latest = now() + _READY_S
        while self._voda.is_running and not self._is_over and now() < latest:
            if await self._voda.is_ready(self._session):
                await self._pause(chance.uniform(0, 0.3) if draw < 0.6 else chance.uniform(0, 2.5))
                return
            await asyncio.sleep(_POLL_S)

    async def _kill(self, how: str) -> None:
        if await self._voda.kill():
            self.tally.kills += 1
            self._note(f"killed {how}", "voda")

    async def _freeze(self, chance: Random) -> None:
        """Have it stand still, as a machine that swaps does, and kill it or let it go on."""
        if not self._voda.is_running:
            return
        self._voda.stop()
        self._note("stopped", "voda")
        self.tally.stops += 1
        await self._pause(min(20.0, chance.expovariate(1 / 3)))
        if chance.random() < 0.3:
            await self._kill("while it stood still")
            return
        self._voda.go_on()
        self._note("goes on", "voda")

    async def _sicken(self, chance: Random) -> None:
        """Let one thing after the other happen to the servers, with time to recover between them."""
        while self._ills and not self._is_over:
            await self._pause(chance.uniform(0.5, 8))
            await self._calmed()
            ill = chance.choice(self._ills)
            self._note("begins", ill.name)
            self.tally.ills[ill.name] += 1
            await ill.strike()
            try:
                await self._pause(chance.uniform(0.1, ill.longest_s))
            finally:
                await ill.heal()
                self._note("is over", ill.name)

    async def _calmed(self, voda: Voda | None = None) -> None:
        """Wait while it is calm, as long as voda lives, where it is given."""
        while self._is_calm and not self._is_over and (voda is None or voda.is_running):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _pause(self, span_s: float) -> None:
        end = min(now() + span_s, self._until)
        while now() < end and self.tally.kills < self._wanted:  # noqa: ASYNC110 - processes set no event
            await asyncio.sleep(min(_POLL_S, max(0.0, end - now())))

    def _note(self, what: str, whom: str) -> None:
        self._story.asked(self.tally.kills, 0, what=what, whom=whom)
