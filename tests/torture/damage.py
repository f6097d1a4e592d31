"""Damages a log's files, one flipped bit or cut at a time, and tells what a verification makes of each.

python -m tests.torture.damage --store sqlite --rounds 500
python -m tests.torture.damage --store postgres --rounds 40
"""

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.torture import damage_cluster, damage_jetstream, damage_postgres, damage_sqlite
from tests.torture.damage_judge import Report

CASES: Mapping[str, Mapping[str, Callable[..., Report]]] = {
    "sqlite": {
        "closed": partial(damage_sqlite.torture, is_closed=True),
        "killed": partial(damage_sqlite.torture, is_closed=False),
    },
    "postgres": {
        "with checksums": partial(damage_postgres.torture, has_checksums=True),
        "without checksums": partial(damage_postgres.torture, has_checksums=False),
    },
    "jetstream": {
        "stopped": partial(damage_jetstream.torture, has_index=True),
        "killed": partial(damage_jetstream.torture, has_index=False),
        "one node of three": damage_cluster.torture,
    },
}
"""Store -> case -> what is called with `rounds` and `seed`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; return 1 where nothing told of a damage."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.damage", description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=sorted(CASES), default="sqlite")
    parser.add_argument("--rounds", type=int, default=200, help="damages of each case")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    # That a damaged snapshot is passed over is as it should be, and happens hundreds of times.
    logging.getLogger("voda").setLevel(logging.ERROR)
    reports = {case: run(rounds=options.rounds, seed=options.seed) for case, run in CASES[options.store].items()}
    for case, report in reports.items():
        for line in (*report.problems[:20], *(f"only a verification tells: {told}" for told in report.misreads[:5])):
            print(f"  {line}")  # noqa: T201 - a program for people
        print(f"{options.store} {case}: {report}")  # noqa: T201
    return 1 if any(report.problems for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
