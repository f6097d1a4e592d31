"""`python -m tests.conformance.hived FILE...`: runs vectors, one line per group; exit 0 when all hold."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.hived.report import run_vectors, summary
from tests.conformance.hived.vectors import read_vectors


def main(files: Sequence[str]) -> int:
    """Run the files; return 0 when every group holds, 1 when one does not, 2 without a file."""
    if not files:
        print("which vectors? usage: python -m tests.conformance.hived FILE...", file=sys.stderr)  # noqa: T201
        return 2
    results = [result for file in files for result in run_vectors(read_vectors(Path(file)))]
    for result in results:
        print("\n".join(result.lines()))  # noqa: T201
    print(summary(results))  # noqa: T201
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
