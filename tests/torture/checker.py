"""Proves from what a torture left behind that nothing was lost, doubled, made up or reordered; a program of its own.

python -m tests.torture.checker JOURNAL... --log FOLDER [--voda PROGRAM] [--home FOLDER] [-o VERDICT.json]

Rule: it reads the journals and the copy of the log, and imports nothing of voda. `voda log verify` and `voda replay
--verify` are run as programs, as two more witnesses. Exit status: 0 all claims hold, 1 one is broken, 2 no evidence:
files that cannot be read, or journals in which nothing was acknowledged.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from tests.torture import journal_claims, log_claims
from tests.torture.evidence import Log, Operation, read_journal, read_log
from tests.torture.journal_claims import Case

_WITNESS_S = 900
_MOST_TOLD = 20
"""Violations of a claim that are told; the first ones lead to the cause."""

Findings = Mapping[str, Sequence[str]]
"""claim -> what breaks it; empty where it holds."""


def main(words: Sequence[str]) -> int:
    """Check, print what was found, and return the exit status."""
    options = _options(words)
    try:
        log = read_log(options.log)
        read = [read_journal(path) for path in options.journals]
    except OSError as error:
        print(f"checker: {error.filename} cannot be read: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 2
    operations = [one for found, _ in read for one in found]
    findings = {**judged(log, operations), "every journal can be read": [line for _, bad in read for line in bad]}
    if options.voda:
        findings |= _witnesses(options.voda, options.log)
    if options.home:
        findings |= _left_on_the_machine(options.home)
    figures = counted(log, operations)
    if options.output:
        options.output.write_text(json.dumps({"findings": findings, "figures": figures}, indent=1))
    print(_report(findings, figures))  # noqa: T201 - a program's answer
    if any(findings.values()):
        return 1
    # Nobody was promised anything: that nothing of it is lost tells nothing.
    return 0 if figures["acknowledged"] else 2


def judged(log: Log, operations: Sequence[Operation]) -> Findings:
    """Return for every claim on log and journals what breaks it."""
    case = Case(log, operations)
    of_the_log = {claim: _first(holds(log)) for claim, holds in log_claims.CLAIMS.items()}
    return {**of_the_log, **{claim: _first(holds(case)) for claim, holds in journal_claims.CLAIMS.items()}}


def counted(log: Log, operations: Sequence[Operation]) -> Mapping[str, int]:
    """Return how much was proven: a torture in which nothing happened proves nothing."""
    tries = [each for one in operations for each in one.tries]
    return {
        "events": len(log.entries),
        "jobs": journal_claims.submissions(log),
        "plans": sum(1 for entry in log.entries if entry.type == "plan.adopted"),
        "leaders": len({(e.epoch, str(e.data.get("leader"))) for e in log.entries if e.type == "leader.elected"}),
        "operations": len(operations),
        "acknowledged": sum(1 for one in operations if one.acknowledged is not None),
        "refused": sum(1 for each in tries if each.outcome == "refused"),
        "unknown": sum(1 for each in tries if each.outcome == "unknown"),
        "retried": sum(1 for one in operations if len(one.tries) > 1),
    }


def _witnesses(voda: str, log: Path) -> Findings:
    """Ask voda's own verification, as whoever doubts a log does."""
    return {
        "voda log verify finds the log whole": _asked(voda, "log", "verify", str(log)),
        "voda replay --verify makes every plan again": _asked(voda, "replay", str(log), "--verify"),
    }


def _asked(*words: str) -> Sequence[str]:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_WITNESS_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{' '.join(words)}: {error}"]
    return [] if done.returncode == 0 else [(done.stderr + done.stdout).strip() or f"exit status {done.returncode}"]


def _left_on_the_machine(home: Path) -> Findings:
    """Look for processes of jobs of this home, by the mark that all of them bear, and for replicas that ran twice."""
    mark = f"VODA_REPLICA={home.resolve()}".encode()
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue
        if any(entry == mark or entry.startswith(mark + b"/") for entry in environment.split(b"\0")):
            left.append(f"process {process.name} is left: {command.replace(bytes(1), b' ').decode(errors='replace')}")
    doubled = [f"{path.parent.name}: {path.read_text().strip()}" for path in sorted(home.glob("jobs/*/doubled*"))]
    return {"no process of a job is left": left, "no replica ran twice at a time": doubled}


def _first(violations: Iterator[str]) -> Sequence[str]:
    return list(islice(violations, _MOST_TOLD))


def _report(findings: Findings, figures: Mapping[str, int]) -> str:
    lines = [f"{'broken' if broken else 'holds '}  {claim}" for claim, broken in findings.items()]
    lines += [f"  {claim}: {what}" for claim, broken in findings.items() for what in broken]
    return "\n".join([*lines, ", ".join(f"{name} {count:,}" for name, count in figures.items())])


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.checker", description=__doc__)
    parser.add_argument("journals", nargs="*", type=Path, metavar="JOURNAL", help="of a client, JSON lines")
    parser.add_argument("--log", type=Path, required=True, metavar="FOLDER", help="what `voda log copy` wrote")
    parser.add_argument("--voda", default="", metavar="PROGRAM", help="let this voda verify the log, too")
    parser.add_argument("--home", type=Path, metavar="FOLDER", help="look for processes of its jobs on this machine")
    parser.add_argument("--output", "-o", type=Path, metavar="VERDICT", help="write what was found as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
