"""One way to read what jobs print, for all pools there are.

Rule: pools come and go, and none of them is kept here.
"""

from collections.abc import Iterator, Mapping, Sequence

from voda.cluster.port import Outputs


class Everywhere(Mapping[str, Outputs]):
    """The same outputs for every pool, those that come later too."""

    def __init__(self, pools: Sequence[str], outputs: Outputs) -> None:
        self._pools = pools
        self._outputs = outputs

    def __getitem__(self, pool: str) -> Outputs:
        return self._outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)
