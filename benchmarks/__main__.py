"""`python -m benchmarks [NAME ...]`: run every benchmark (bench_*.py), or those whose name contains a NAME.

A benchmark is a module with `TITLE` and `run() -> Sequence[Row]`. Goals are reported, never enforced: machines are
noisy, so compare the ratios. `python -m benchmarks quality -h` compares what policies make of workloads, `beside -h`
what a re-plan costs beside an older tree.
"""

import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import beside, quality
from benchmarks.table import Row, show


def names() -> list[str]:
    """Return the names of all benchmarks."""
    found = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return [name.removeprefix("bench_") for name in found if name.startswith("bench_")]


def main(wanted: list[str]) -> None:
    """Run the benchmarks whose names contain one of `wanted`; all when there is none."""
    chosen = [name for name in names() if not wanted or any(part in name for part in wanted)]
    if not chosen:
        sys.exit(f"there is no benchmark {' or '.join(wanted)}: expected some of {', '.join(names())}, or nothing")
    rows: list[Row] = []
    for name in chosen:
        module = importlib.import_module(f"benchmarks.bench_{name}")
        print(f"running {name} ...", file=sys.stderr, flush=True)
        measured = module.run()
        show(measured, getattr(module, "TITLE", name))
        rows += measured
    judged = [row for row in rows if row.is_met is not None]
    print(f"{sum(bool(row.is_met) for row in judged)} of {len(judged)} goals met")


if __name__ == "__main__":
    if sys.argv[1:2] == ["quality"]:
        quality.main(sys.argv[2:])
    elif sys.argv[1:2] == ["beside"]:
        beside.main(sys.argv[2:])
    else:
        main(sys.argv[1:])
