"""The variables that the options of `voda submit` give to a program.

Rule: a later option replaces the values of an earlier one, in this order: --export, --env-file, --env.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from voda.domain.errors import InvalidInput

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_BYTES: Final = 1 << 20


def variables(
    exported: Sequence[str], files: Sequence[Path], pairs: Sequence[str], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return name and value of each variable; those that are exported have the values of `environment`.

    Raises:
        InvalidInput: a name or a file cannot be used, or a variable that is exported is not set.
    """
    found: dict[str, str] = {}
    for name in (name for names in exported for name in names.split(",")):
        if name not in environment:
            raise InvalidInput(f"--export {name[:60]}: there is no such variable here; --env gives a value")
        found[name] = environment[name]
    for file in files:
        found.update(_lines(file))
    found.update(_pair(text, "--env") for text in pairs)
    return tuple(found.items())


def files_of_variables(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return name and absolute path of each variable whose value a job reads from a file; InvalidInput otherwise."""
    named = (_pair(text, "--env-from-file", "PATH") for text in pairs)
    return tuple({name: str(Path(path).expanduser().absolute()) for name, path in named}.items())


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"--env-file {file} cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise InvalidInput(f"--env-file {file} has more than {_MOST_BYTES:,} bytes: that is no list of variables")
    for number, line in enumerate(content.decode("utf-8-sig", "surrogateescape").splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _pair(line.lstrip(), f"--env-file {file}, line {number}")


def _pair(text: str, where: str, value_is: str = "VALUE") -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not _NAME.fullmatch(name) or (value_is == "PATH" and not value):
        # The value may be a secret.
        raise InvalidInput(
            f"{where}: expected NAME={value_is}, with a name of letters, digits and _, got {name[:40]!r}"
        )
    return name, value
