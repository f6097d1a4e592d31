"""What can be asked of the figures."""

from msgspec import Struct


class Options(Struct, frozen=True, kw_only=True):
    """See `python -m benchmarks.log --help`."""

    scale: float = 1.0
    """Of events and tries; figures at another scale than 1 are for whoever works on them."""
    stores: tuple[str, ...] = ()
    """Names; empty: all there are."""

    def scaled(self, count: int, least: int = 1) -> int:
        """Return a count at this scale."""
        return max(least, round(count * self.scale))
