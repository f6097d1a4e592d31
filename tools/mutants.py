"""Shows whether the tests find mistakes: changes one place of the pure core at a time and runs the tests.

A seeded sample of all mutants is tried, each with the tests that execute the changed line and need neither a server nor
the clock. A mutant that survives them is printed, unless HARMLESS says why nobody could see the change.
"""

import argparse
import ast
import difflib
import json
import multiprocessing
import random
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.trials import ROOT, Executed, Finder, attempt, measure, warm_up

ROOMS = ("cells", "domain", "policies", "planner", "projections")
HARMLESS = ROOT / "tests" / "harmless_mutants.toml"
GOAL = 0.9
"""The share of mutants that the tests shall find."""


Position = tuple[int, int]
"""Line from 1, column from 0."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str
    start: Position
    operator: str
    occurrence: int

    def apply(self, text: str) -> str:
        """Return the module's text with the change."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        return str(mutate_code(text, get_operator(self.operator)(), self.occurrence))

    def change(self) -> tuple[str, str]:
        """Return the lines that differ, before and after, stripped."""
        text = (ROOT / self.path).read_text(encoding="utf-8")
        old, new = text.splitlines(), self.apply(text).splitlines()
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        changed = [block for block in blocks if block[0] != "equal"]
        before = "\n".join(line.strip() for _, begin, end, _, _ in changed for line in old[begin:end])
        return before, "\n".join(line.strip() for *_, begin, end in changed for line in new[begin:end])


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module, but those of type annotations, which no test can see."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    annotations = list(_annotations(path.read_text(encoding="utf-8")))
    nodes = list(ast_nodes(get_ast_from_path(path)))
    for name in sorted(operator_names()):
        if (operator := get_operator(name)).arguments():
            continue
        positions = (start for node in nodes for start, _ in operator().mutation_positions(node))
        for occurrence, start in enumerate(positions):
            if not any(begin <= start < end for begin, end in annotations):
                yield Mutant(str(path.relative_to(ROOT)), start, name, occurrence)


def _annotations(text: str) -> Iterator[tuple[Position, Position]]:
    """Yield where type annotations and aliases of types begin and end."""
    for node in ast.walk(ast.parse(text)):
        types: list[ast.expr | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            types = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            types = [node.returns]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript) and _is_alias(node):
            types = [node.value]
        for one in types:
            if one is not None:
                yield (one.lineno, one.col_offset), (one.end_lineno or one.lineno, one.end_col_offset or 0)


def _is_alias(node: ast.Assign) -> bool:
    (target, *_) = node.targets
    return isinstance(target, ast.Name) and not target.id.isupper() and target.id.lstrip("_")[:1].isupper()


def draw(every: Sequence[Mutant], size: int, chance: random.Random) -> list[Mutant]:
    """Return a sample, at most one mutant of each place: places count alike, however many operators fit them."""
    places: dict[tuple[str, Position], list[Mutant]] = {}
    for one in every:
        places.setdefault((one.path, one.start), []).append(one)
    drawn: list[Mutant] = []
    for place in chance.sample(sorted(places), len(places)):
        one = chance.choice(places[place])
        if len(drawn) < size and _compiles(one.apply((ROOT / one.path).read_text(encoding="utf-8"))):
            drawn.append(one)
    return drawn


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@dataclass(frozen=True)
class Result:
    """What became of a mutant; the lines that differ are stripped."""

    path: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str
    outcome: str
    """found, too long or survived."""
    test: str
    seconds: float

    @property
    def change(self) -> tuple[str, str, str]:
        """What tells a mutant from others while lines move."""
        return self.path, self.before.strip(), self.after.strip()

    def __str__(self) -> str:
        signs = [
            f"  {sign} {line}" for sign, text in (("-", self.before), ("+", self.after)) for line in text.splitlines()
        ]
        return "\n".join((f"{self.path}:{self.line}", *signs))


@dataclass(frozen=True)
class Trial:
    """Tries mutants; a process of the pool calls it."""

    executed: Executed

    def __call__(self, mutant: Mutant) -> Result:
        """Run the tests against a mutant."""
        start = time.perf_counter()
        text = mutant.apply((ROOT / mutant.path).read_text(encoding="utf-8"))
        outcome = attempt(Finder(mutant.path, text), mutant.start[0], self.executed)
        word = "survived" if outcome.survived else "too long" if outcome.too_long else "found"
        return Result(
            mutant.path,
            mutant.start[0],
            mutant.operator,
            mutant.occurrence,
            *mutant.change(),
            outcome=word,
            test=outcome.test,
            seconds=round(time.perf_counter() - start, 1),
        )


def harmless() -> set[tuple[str, str, str]]:
    """Return the mutants that change nothing that anybody could see: path, line before, line after."""
    if not HARMLESS.exists():
        return set()
    listed = tomllib.loads(HARMLESS.read_text(encoding="utf-8"))["mutant"]
    return {(one["path"], one["before"].strip(), one["after"].strip()) for one in listed}


def read_results(file: Path) -> list[Result]:
    """Return what an earlier run wrote."""
    return (
        [Result(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def try_all(sample: Sequence[Mutant], trial: Trial, jobs: int) -> Iterator[Result]:
    """Yield what becomes of each mutant, and print how far it is."""
    start = time.perf_counter()
    survived = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for done, result in enumerate(pool.imap_unordered(trial, sample), start=1):
            yield result
            survived += result.outcome == "survived"
            if done % 10 == 0:
                minutes = (time.perf_counter() - start) / done * (len(sample) - done) / 60
                progress = f"{done} of {len(sample)} tried, {survived} survived, about {minutes:.0f} minutes to go"
                print(progress, file=sys.stderr, flush=True)


def main() -> None:
    """Try a sample of mutants; exit with 1 if fewer are found than GOAL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run of the same sources")
    parser.add_argument("--retry", action="store_true", help="resume, and try survivors again that are not listed")
    options = parser.parse_args()
    start = time.perf_counter()
    paths = sorted(path for room in ROOMS for path in (ROOT / "voda" / room).rglob("*.py"))
    every = [one for path in paths for one in mutants(path)]
    sample = draw(every, options.sample, random.Random(options.seed))
    print(f"{len(every):,} mutants of {len(paths)} modules; {len(sample)} are tried, seed {options.seed}", flush=True)
    warm_up()
    results = _run(sample, options)
    _report(results)
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes")
    sys.exit(0 if _share(results) >= GOAL else 1)


def _run(sample: Sequence[Mutant], options: argparse.Namespace) -> list[Result]:
    options.out.mkdir(parents=True, exist_ok=True)
    file, measured = options.out / "results.jsonl", options.out / "executed.json"
    resume = (options.resume or options.retry) and measured.exists()
    if not resume:
        file.unlink(missing_ok=True)
        measured.write_text(json.dumps(asdict(measure([ROOT / "voda" / room for room in ROOMS]))), encoding="utf-8")
    trial = Trial(Executed(**json.loads(measured.read_text(encoding="utf-8"))))
    known = harmless()
    earlier = read_results(file)
    results = [one for one in earlier if not options.retry or one.outcome != "survived" or one.change in known]
    file.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in results), encoding="utf-8")
    done = {(one.path, one.operator, one.occurrence) for one in results}
    rest = [one for one in sample if (one.path, one.operator, one.occurrence) not in done]
    with file.open("a", encoding="utf-8") as lines:
        for result in try_all(rest, trial, options.jobs):
            results.append(result)
            print(json.dumps(asdict(result)), file=lines, flush=True)
    return results


def _report(results: Sequence[Result]) -> None:
    known = harmless()
    survivors = [one for one in results if one.outcome == "survived"]
    unlisted = [one for one in survivors if one.change not in known]
    print(*(f"survived: {one}" for one in unlisted), sep="\n")
    found, too_long = len(results) - len(survivors), sum(one.outcome == "too long" for one in results)
    print(f"{found} of {len(results)} found, {_share(results):.1%}; {too_long} of them because the tests ran too long")
    print(
        f"{len(survivors)} survived: {len(survivors) - len(unlisted)} are listed as harmless, {len(unlisted)} are not"
    )


def _share(results: Sequence[Result]) -> float:
    return sum(one.outcome != "survived" for one in results) / len(results)


if __name__ == "__main__":
    main()
