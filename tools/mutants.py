"""Shows whether the tests find mistakes: changes one place of the pure core at a time and runs the tests.

A seeded sample of all mutants is tried, each in a copy of the project: first the tests of its room, then those of the
whole core, then all that need no server. A mutant that survives them all is printed, unless HARMLESS says why it cannot
be found.
"""

import argparse
import ast
import asyncio
import difflib
import random
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("domain", "policies", "planner", "projections")
CORE = (
    *(f"tests/unit/{room}" for room in (*ROOMS, "placement", "controller", "reconcilers", "events", "timetravel")),
    "tests/contract/test_policies.py",
    "tests/contract/test_placers.py",
    "tests/replay",
)
REST = ("tests/unit", "tests/integration/test_simulation.py")
HARMLESS = ROOT / "tests" / "harmless_mutants.toml"
STAGE_LIMIT_S = 600.0
"""A mutant that makes the tests run longer is found: they would not end."""
_COPIED = ("voda", "tests", "migrations", "benchmarks", "tools", "examples", "deploy", "docs")
_FILES = ("pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile", "CHANGELOG.md")


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


class Workshop:
    """Copies of the project, one per worker, in which mutants are tried."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folders: asyncio.Queue[Path] = asyncio.Queue()
        for number in range(workers):
            self._folders.put_nowait(_copy(folder / f"copy-{number}"))

    async def survives(self, mutant: Mutant) -> bool:
        """Return whether all tests pass with the mutant."""
        folder = await self._folders.get()
        module = folder / mutant.path
        original = module.read_text(encoding="utf-8")
        try:
            module.write_text(mutant.apply(original), encoding="utf-8")
            room = f"tests/unit/{Path(mutant.path).parts[1]}"
            for stage in ((room,), CORE, REST):
                if not await _passes(folder, stage):
                    return False
            return True
        finally:
            module.write_text(original, encoding="utf-8")
            self._folders.put_nowait(folder)


def _copy(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in _FILES:
        shutil.copy2(ROOT / name, folder / name)
    return folder


async def _passes(folder: Path, tests: Sequence[str]) -> bool:
    there = [test for test in tests if (folder / test).exists()]
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *there]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(STAGE_LIMIT_S):
            return await process.wait() == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False


def harmless() -> set[tuple[str, str, str]]:
    """Return the mutants that change nothing that anybody could see: path, line before, line after."""
    if not HARMLESS.exists():
        return set()
    listed = tomllib.loads(HARMLESS.read_text(encoding="utf-8"))["mutant"]
    return {(one["path"], one["before"], one["after"]) for one in listed}


async def try_all(sample: Sequence[Mutant], workshop: Workshop) -> list[Mutant]:
    """Return the mutants that survive, in the order of the sample."""
    outcomes: list[bool] = [False] * len(sample)
    done = 0

    async def attempt(number: int) -> None:
        nonlocal done
        outcomes[number] = await workshop.survives(sample[number])
        done += 1
        if outcomes[number]:
            before, after = sample[number].change()
            print(f"survived: {sample[number].path}\n  - {before}\n  + {after}", flush=True)
        if done % 25 == 0:
            print(f"{done} of {len(sample)} tried, {sum(outcomes)} survived", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as group:
        for number in range(len(sample)):
            group.create_task(attempt(number))
    return [one for one, survived in zip(sample, outcomes, strict=True) if survived]


def main() -> None:
    """Try a sample of mutants; exit with 1 if fewer than nine in ten are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants")
    options = MappingProxyType(vars(parser.parse_args()))
    paths = sorted(path for room in ROOMS for path in (ROOT / "voda" / room).rglob("*.py"))
    known = harmless()
    all_mutants = [one for path in paths for one in mutants(path)]
    sample = draw(all_mutants, options["sample"], random.Random(options["seed"]))
    print(f"{len(all_mutants):,} mutants of {len(paths)} modules; {len(sample)} are tried, seed {options['seed']}")
    survivors = asyncio.run(try_all(sample, Workshop(options["out"], options["jobs"])))
    unlisted = [one for one in survivors if (one.path, *one.change()) not in known]
    share = 1 - len(survivors) / len(sample)
    print(
        f"{len(sample) - len(survivors)} of {len(sample)} found, {share:.1%}; {len(unlisted)} survivors are not listed"
    )
    sys.exit(0 if share >= 0.9 else 1)


if __name__ == "__main__":
    main()
