"""The kinds by name. Rule: to add a kind is to add a file to this folder; there is no list to edit."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any, Final, cast

import voda.kinds
from voda.kinds.base import JobManifest


def classes_in(package: ModuleType, base: type, attribute: str) -> list[Any]:
    """Import every module of a package and return the subclasses of `base` in it that have a value for an attribute."""
    modules = [
        importlib.import_module(file.name) for file in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return [each for each in dict.fromkeys(classes) if issubclass(each, base) and hasattr(each, attribute)]


KINDS: Final = {kind.name: cast(type[JobManifest], kind) for kind in classes_in(voda.kinds, JobManifest, "name")}
"""Name, such as MPIJob -> kind."""
