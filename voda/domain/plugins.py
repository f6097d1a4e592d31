"""Catalogues: parts that are found by the file they lie in, and chosen by the name users write.

Rule: to add a part is to add a file; there is no list to edit. A wrong name is answered with the known ones.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import TypeVar

from voda.domain.errors import InvalidInput

Part = TypeVar("Part")


def classes_with(method: str, package: ModuleType) -> Mapping[str, type]:
    """Import every module of the package and return its public classes that can do `method`, by their `name`.

    Protocols and imported classes are left out: a part belongs to the file that defines it.

    Args:
        method: name of the method that makes a class a part, such as `allocate`.
        package: where the files lie; its subpackages are not searched.

    Returns:
        The classes in the order of their names.

    Raises:
        ValueError: two classes have the same `name`.
    """
    found: dict[str, type] = {}
    for file in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(file.name)
        for part in vars(module).values():
            if not _is_part(part, method, module.__name__):
                continue
            if (name := str(part.name)) in found:
                raise ValueError(f"{module.__name__}: the name {name!r} is taken by {found[name].__module__}")
            found[name] = part
    return dict(sorted(found.items()))


def chosen(name: str, known: Mapping[str, Part], *, what: str) -> Part:
    """Return the part of that name.

    Args:
        name: as the user wrote it.
        known: all parts by name.
        what: what the parts are, in the singular, for the message: `policy`.

    Raises:
        InvalidInput: there is none; the message names the closest one and all that are known.
    """
    if (part := known.get(name)) is not None:
        return part
    close = get_close_matches(name.lower(), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInput(f"{what} {name[:80]!r} is not known.{hint} Known: {', '.join(known)}.")


def first_known(choose: Callable[[str], Part], wanted: str, in_force: str) -> Part:
    """Return the wanted part, or the one in force where the wanted one is not known.

    A log may name a part that this version lacks; the pool then goes on as it was, rather than not at all.

    Args:
        choose: returns the part of a name, or raises InvalidInput.
        wanted: as set.
        in_force: of the last decision; "" = there was none.

    Raises:
        InvalidInput: `wanted` is not known, and nothing is in force.
    """
    try:
        return choose(wanted)
    except InvalidInput:
        if in_force in ("", wanted):
            raise
        return choose(in_force)


def _is_part(candidate: object, method: str, module: str) -> bool:
    return (
        isinstance(candidate, type)
        and candidate.__module__ == module
        and not candidate.__name__.startswith("_")
        and not getattr(candidate, "_is_protocol", False)
        and hasattr(candidate, method)
        and hasattr(candidate, "name")
    )
