"""What can be asked of the figures."""

from collections.abc import Sequence

from msgspec import Struct

from tests.served_process import PROGRAM


class Options(Struct, frozen=True, kw_only=True):
    """See `python -m benchmarks.kube --help`."""

    scale: float = 1.0
    """Of nodes, jobs, pods and tries; figures at another scale than 1 are for whoever works on them."""
    is_full: bool = False
    has_pools: bool = False
    within_s: float = 600.0
    profile: str = ""
    """File where cProfile writes what voda did, once it ends by itself; empty: nowhere."""

    @property
    def program(self) -> Sequence[str]:
        """What is run as voda."""
        return ("-m", "benchmarks.kube.profiled", self.profile) if self.profile else PROGRAM

    def scaled(self, count: int, least: int = 1) -> int:
        """Return a count at this scale."""
        return max(least, round(count * self.scale))
