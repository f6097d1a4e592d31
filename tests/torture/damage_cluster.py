"""Damage to the files of one node of a JetStream cluster of three, which then has to lead.

Rule: the other two nodes are sound, so nothing may be lost. Every round kills one node, damages one of its message
blocks, starts it, and when the cluster is well again kills whoever leads, so that the damaged one may be elected.
"""

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tests import nats
from tests.torture.damage_judge import Outcome, Report, Truth, a_damage, filled, judged
from voda.domain.rng import rng_at
from voda.log.factory import open_store

_EVENTS: Final = 200
_LOG: Final = "log"
_LED_WITHIN_S: Final = 60.0


def torture(*, rounds: int, seed: int) -> Report:
    """Damage one node after the other; a node that was damaged is not repaired but by its cluster."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="voda-damage-") as folder, nats.serving(3, folder=Path(folder)) as server:
        url = server.url(_LOG)
        truth = asyncio.run(filled(url, _EVENTS))
        for number in range(rounds):
            _try(report, server, truth, number=number, rng=rng_at(seed, number))
    return report


async def _judged_once_led(url: str, truth: Truth) -> tuple[Outcome, str]:
    """Judge a log that has a leader: servers that elect one, or are slow to, have found no damage."""
    opened = partial(open_store, url, read_only=True)
    async with asyncio.timeout(_LED_WITHIN_S):
        while True:
            outcome, said = await judged(opened, truth)
            if outcome != Outcome.FOUND or "does not answer" not in said:
                return outcome, said


def _try(report: Report, server: nats.NatsServer, truth: Truth, *, number: int, rng: Random) -> None:
    url = server.url(_LOG)
    node = server.nodes[number % len(server.nodes)]
    node.kill()
    # The messages themselves; what the nodes agreed on is in folders of its own.
    blocks = [path for path in node.store.glob(f"jetstream/*/streams/{_LOG}/msgs/*.blk") if path.stat().st_size]
    sizes = {str(path.relative_to(node.folder)): path.stat().st_size for path in blocks}
    if not sizes:
        node.start()
        report.problems.append(f"{node.name} keeps nothing of the log")
        return
    damage = a_damage(sizes, rng)
    place = node.folder / damage.file
    place.write_bytes(damage.done_to(place.read_bytes()))
    try:
        node.start()
        server.wait_until_healthy()
        leader = server.leader(_LOG)
        leader.kill()
        leader.start()
        server.wait_until_healthy()
        outcome, said = asyncio.run(_judged_once_led(url, truth))
    except Exception as error:  # whatever is no VodaError is a defect, and one of many rounds
        report.problems.append(f"{node.name} {damage}: {type(error).__name__}: {error}")
    else:
        report.add(damage, outcome, f"{node.name}, after {leader.name} led: {said}")
