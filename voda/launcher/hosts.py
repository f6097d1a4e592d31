"""Reads the hosts and slots that a discovery script lists, and chooses those that a program gets. Pure.

Rule: a change of order alone is no change; a host in use stays in use as long as it is listed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from voda.domain.errors import InvalidInput

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LINE = re.compile(r"(?P<host>[^\s:]+)(?:(?::|\s+slots\s*=\s*)(?P<slots>\d{1,6}))?")
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a program's processes run."""

    slots: Mapping[str, int]
    """host -> processes there, in the order of the ranks; never 0."""
    devices: str | None = None
    """The value of CUDA_VISIBLE_DEVICES; None: as it is."""

    @property
    def size(self) -> int:
        """Processes in all."""
        return sum(self.slots.values())

    def __str__(self) -> str:
        """Describe it in words, shortened."""
        named = [f"{host}:{slots}" for host, slots in self.slots.items()]
        more = f" and {len(named) - 8} more hosts" if len(named) > 8 else ""
        return f"{self.size} on {' '.join(named[:8])}{more}" if named else "0"


def parse_hosts(text: str, *, slots_per_host: int, source: str) -> Mapping[str, int]:
    """Return host -> slots, in the order listed.

    Lines are `host`, `host:slots` or `host slots=N`; blank lines and comments after # are skipped. A host that stands
    on two lines has the slots of both.

    Args:
        text: what the script printed.
        slots_per_host: of a host listed without slots.
        source: for messages.

    Raises:
        InvalidInput: a line is none of these.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not (stripped := line.partition("#")[0].strip()):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None or not _HOST.fullmatch(match["host"]):
            shown = stripped[:_SHOWN] + ("..." if len(stripped) > _SHOWN else "")
            raise InvalidInput(
                f"line {number} of what {source} printed is {shown!r}, expected a host such as node-1 or node-1:4;"
                " run the script by hand to see what it prints"
            )
        slots = slots_per_host if match["slots"] is None else int(match["slots"])
        if slots:
            found[match["host"]] = found.get(match["host"], 0) + slots
    return found


def allot(found: Layout, most: int, used: Layout | None) -> Layout:
    """Return where at most `most` processes run: on the hosts in use first, then on the others as listed.

    Args:
        found: all that there is.
        most: largest number of processes, 1 or more.
        used: where the program runs now or ran last.
    """
    kept = [] if used is None else [host for host in used.slots if host in found.slots]
    order = [*kept, *(host for host in found.slots if host not in kept)]
    slots: dict[str, int] = {}
    free = most
    for host in order:
        if taken := min(free, found.slots[host]):
            slots[host] = taken
        free -= taken
    chosen = Layout(slots=slots, devices=found.devices)
    # Equal but for the order, which a mapping does not compare.
    return used if used == chosen else chosen


def are_local(hosts: Iterable[str], names: Iterable[str]) -> bool:
    """Say whether all hosts are this machine, whose own names are given."""
    here = {"localhost", "127.0.0.1", *names}
    return all(host in here for host in hosts)
