"""Which launcher starts a program that comes without a manifest: what its command says, else what its script imports.

Rule: a script is parsed, never run; whatever it holds, the answer comes, if only that nothing is known of it.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

Launcher = Literal["mpirun", "torchrun", "plain"]
MOST_SCRIPT_BYTES: Final = 1_000_000
CANNOT_RUN: Final = {126: "found, but not executable", 127: "command not found"}
"""What a shell means by these exit codes: another try would end the same."""

_COMMANDS: Final[dict[str, Launcher]] = {
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "horovodrun": "mpirun",
    "torchrun": "torchrun",
    "accelerate": "torchrun",
}
_FIXED_SIZE: Final = frozenset({"mpirun", "mpiexec"})
# In this order: a program of Horovod or MPI may use torch.distributed too.
_IMPORTS: Final[dict[str, Launcher]] = {
    "horovod": "mpirun",
    "mpi4py": "mpirun",
    "torch.distributed": "torchrun",
    "lightning": "torchrun",
    "pytorch_lightning": "torchrun",
    "accelerate": "torchrun",
    "deepspeed": "torchrun",
}
_FRAMEWORKS: Final = frozenset(
    {"accelerate", "deepspeed", "horovod", "jax", "keras", "lightning", "mpi4py", "numpy"}
    | {"pytorch_lightning", "tensorflow", "torch"}
)
"""Libraries without which a script that imports them fails at once."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh", "fish"})
# Beside the launchers that voda knows: they start the program that follows among their words.
_STARTERS: Final = frozenset({"deepspeed", "env", "nice", "nohup", "time", "uv"})
_PYTHON_OPTIONS_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")


class LauncherChoice(NamedTuple):
    launcher: Launcher
    reason: str
    """A clause: `it imports horovod`."""
    is_unread: bool = False
    """Whether there is a script, and what it imports is not known."""
    libraries: tuple[str, ...] = ()
    """Frameworks that the script imports whatever happens."""


def launcher_in_command(words: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command begins with; None where it begins with something else."""
    return _COMMANDS.get(PurePath(words[0]).name)


def has_fixed_size(words: Sequence[str]) -> bool:
    """Return whether a command begins with a launcher that never changes the number of its processes."""
    return PurePath(words[0]).name in _FIXED_SIZE


def script_in_command(words: Sequence[str]) -> str:
    """Return the Python file that a command runs (`-m a.b`: a/b.py); empty where it runs none that can be known."""
    if words[0].endswith(".py"):
        return words[0]
    if not is_python(words[0]):
        return ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            return f"{module.replace('.', '/')}.py" if module else ""
        if word in _PYTHON_OPTIONS_WITH_VALUE:
            next(rest, "")
        elif word == "-c" or word == "-":
            return ""
        elif not word.startswith("-"):
            return word
    return ""


def program_in_command(words: Sequence[str]) -> str:
    """Return the file that a command is about, also behind a launcher or shell: `train.py` of `torchrun train.py`.

    Where none is seen it is the first word.
    """
    if script := script_in_command(words):
        return script
    if PurePath(words[0]).name in _SHELLS and len(words) > 1 and not words[1].startswith("-"):
        return words[1]
    if launcher_in_command(words) or PurePath(words[0]).name in _STARTERS:
        rest = (words[at:] for at in range(1, len(words)))
        return next((script for part in rest if (script := _script_at(part))), words[0])
    return words[0]


def _script_at(words: Sequence[str]) -> str:
    """Return the program that begins here: `train.py`, `python train.py`, `./solve`, or `-m train` of torchrun."""
    if words[0].startswith("./"):
        return words[0]
    return script_in_command(["python", *words] if words[0] == "-m" else words)


def is_python(word: str) -> bool:
    """Return whether a word of a command calls Python."""
    name, _, version = PurePath(word).name.partition("python")
    return not name and all(part.isdigit() for part in version.split(".") if version)


def torchrun_words(program: Sequence[str], *options: str) -> list[str]:
    """Return a program under torchrun; that of the Python which the program names by its path, else of the PATH.

    Before 2.0 torchrun knows its options with underscores alone.
    """
    if "/" not in program[0] or not is_python(program[0]):
        return ["torchrun", *options, *torchrun_arguments(program)]
    rest = torchrun_arguments(["python", *program[1:]])
    rest = ["--no_python", *program] if rest[0] == "--no_python" else rest
    return [program[0], "-m", "torch.distributed.run", *options, *rest]


def torchrun_arguments(program: Sequence[str]) -> list[str]:
    """Return a program as torchrun takes it: `python` before a script is left out, because torchrun puts its own."""
    has_script = len(program) > 1 and program[0] in ("python", "python3")
    has_script = has_script and (program[1] == "-m" or not program[1].startswith("-"))
    # A Python that is named by its path stays.
    return [*program[1:]] if has_script else ["--no_python", *program]


def launcher_of_script(source: bytes) -> LauncherChoice | None:
    """Return the launcher for the libraries that a script imports; None where the source cannot be parsed."""
    try:
        tree = ast.parse(source[:MOST_SCRIPT_BYTES])
        used = set(_modules(tree))
        roots = {name.partition(".")[0] for statement in tree.body for name in _imported(statement)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    libraries = tuple(sorted(roots & _FRAMEWORKS))
    for library, launcher in _IMPORTS.items():
        if any(module == library or module.startswith(f"{library}.") for module in used):
            return LauncherChoice(launcher, f"it imports {library}", libraries=libraries)
    return LauncherChoice("plain", "it imports no library for several processes", libraries=libraries)


def _modules(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a program imports, and `torch.distributed` where it only names that."""
    for node in ast.walk(tree):
        yield from _imported(node)
        match node:
            case ast.Attribute(value=ast.Name(id="torch"), attr="distributed"):
                yield "torch.distributed"


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (each.name for each in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield module
            yield from (f"{module}.{each.name}" for each in names)
