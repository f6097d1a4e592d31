"""`make fidelity`: shows that the simulator reproduces what others published (a, c) and measured (b).

Rule: the exit status is 0 only when every goal is met; a part whose data are absent says where to get them, and the
others run all the same.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import fidelity_peer, fidelity_sharing, fidelity_voda
from voda.domain.errors import InvalidInput

PARTS: Final[tuple[Callable[[Path | None], bool], ...]] = (
    fidelity_peer.print_report,
    fidelity_voda.print_report,
    fidelity_sharing.print_report,
)
"""Each prints its table and returns whether its goals are met."""


def main(data: Path | None = None) -> int:
    """Run all parts and return the exit status."""
    missed = [part for part in PARTS if not _is_met(part, data)]
    return 1 if missed else 0


def _is_met(part: Callable[[Path | None], bool], data: Path | None) -> bool:
    try:
        return part(data)
    except InvalidInput as error:
        print(f"{part.__module__}: {error}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(main())
