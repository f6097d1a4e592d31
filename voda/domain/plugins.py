"""Plug-ins: parts that are found by the file they lie in, and chosen by the name users write.

Rule: to add a part is to add a file; there is no list to edit. A wrong name is answered with the known ones.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar

from voda.domain.errors import InvalidInput, closest

Part = TypeVar("Part")


def modules_in(package: ModuleType, *, nested: bool = False) -> Iterator[ModuleType]:
    """Import and yield the modules of a package in the order of their names; `nested`: its subpackages' too."""
    search = pkgutil.walk_packages if nested else pkgutil.iter_modules
    for file in search(package.__path__, f"{package.__name__}."):
        if not file.ispkg:
            yield importlib.import_module(file.name)


def classes_in(package: ModuleType, *, nested: bool = False) -> Iterator[type[Any]]:
    """Yield the public classes that a package's modules define, not those that they import; `nested` as there."""
    for module in modules_in(package, nested=nested):
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and not each.__name__.startswith("_"):
                yield each


class Catalogue(Mapping[str, Part]):
    """The parts in the files of a package such as `voda.policies`, by name and in the order of their names.

    A part is an instance of a public class that has a `name` and the given method. The package is searched at the
    first look-up; its subpackages are not. A `noun` such as `policy` is what messages call a part.
    """

    def __init__(self, package: str, *, method: str, noun: str) -> None:
        self._package = package
        self._method = method
        self._noun = noun

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def choose(self, name: str) -> Part:
        """Return the part of the name that a user wrote, or raise InvalidInput."""
        return chosen(name, self, what=self._noun)

    def search_again(self) -> None:
        """Forget what was found, because files were added."""
        self.__dict__.pop("_parts", None)

    @cached_property
    def _parts(self) -> Mapping[str, Part]:
        kinds: dict[str, type[Part]] = {}
        for kind in classes_in(importlib.import_module(self._package)):
            if not _is_part(kind, self._method):
                continue
            if (name := str(kind.name)) in kinds:
                raise ValueError(f"{kind.__module__}: the name {name!r} is taken by {kinds[name].__module__}")
            kinds[name] = kind
        return {name: kind() for name, kind in sorted(kinds.items())}


def chosen(name: str, known: Mapping[str, Part], *, what: str) -> Part:
    """Return the part of the name that a user wrote, or raise InvalidInput with the closest name and all known ones.

    `what` says in the message what the parts are: `policy`.
    """
    if (part := known.get(name)) is not None:
        return part
    hint = f" Did you mean {close!r}?" if (close := closest(name.lower(), known)) else ""
    raise InvalidInput(f"{what} {name[:80]!r} is not known.{hint} Known: {', '.join(known)}.")


def first_known(choose: Callable[[str], Part], wanted: str, in_force: str) -> Part:
    """Return the wanted part, or the one in force where the wanted one is not known; "" = nothing is in force.

    A log may name a part that this version lacks; the pool then goes on as it was, rather than not at all.

    Raises:
        InvalidInput: `wanted` is not known, and nothing is in force.
    """
    try:
        return choose(wanted)
    except InvalidInput:
        if in_force in ("", wanted):
            raise
        return choose(in_force)


def _is_part(kind: type[Any], method: str) -> bool:
    """Return whether instances of a class are parts: a protocol's are not."""
    return not getattr(kind, "_is_protocol", False) and hasattr(kind, method) and hasattr(kind, "name")
