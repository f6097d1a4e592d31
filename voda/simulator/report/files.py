"""What `--out` leaves in its folder beside the logs: results.json and the page with the pictures."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from voda import __version__
from voda.domain.errors import InvalidInput
from voda.simulator.metrics import RunResult
from voda.simulator.report.html import Origin, document
from voda.simulator.report.run_summary import RunOutcome


def results_json(runs: Sequence[RunOutcome]) -> bytes:
    """Return what `voda simulate --json` prints and results.json holds: {"runs": [...]}, two spaces indented."""
    results: dict[str, list[RunResult]] = {"runs": [run.result for run in runs]}
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


def write_report(directory: Path, runs: Sequence[RunOutcome], *, command: str, seed: int) -> Path:
    """Write results.json and index.html, over those of an earlier report, and return the page's path.

    Args:
        directory: made where it is missing.
        runs: of one workload, at least one.
        command: that a reader can repeat.
        seed: of the runs.

    Raises:
        InvalidInput: the folder cannot be made or written to.
    """
    origin = Origin(command=command, seed=seed, version=__version__)
    logs = [os.path.relpath(run.log, directory) if run.log is not None else None for run in runs]
    target = directory / "index.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_bytes(results_json(runs))
        target.write_text(document(runs, origin, logs), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out {directory}: the report cannot be written there ({error.strerror})") from error
    return target
