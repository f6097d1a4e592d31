"""The variables that every process of a job begins with.

Rule: nothing of voda's own environment reaches a job but what is named here; it may hold keys, tokens and addresses.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from voda.accounts import Account, account_of_uid
from voda.programs.importable import package_files
from voda.untrusted_files import UntrustedFolder

_KEPT: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "CUDA_VISIBLE_DEVICES"})
_SHELL: Final = "/bin/sh"
PACKAGE: Final = ".python"
"""Folder beside those of the jobs, with what their programs can import of voda; no job can have that name."""


def clean_environment(
    environment: Mapping[str, str], find: Callable[[int], Account | None] = account_of_uid
) -> dict[str, str]:
    """Return what a job gets of voda's own environment; `find` looks up what is missing of the user who runs voda."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or name.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    # A service of the system has none of these.
    if not kept.keys() >= {"HOME", "USER", "LOGNAME"} and (own := find(os.geteuid())) is not None:
        return {**user_variables(own), **kept}
    return {"SHELL": _SHELL, **kept}


def user_variables(account: Account) -> dict[str, str]:
    """Return the variables of a user's account."""
    return {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": _SHELL}


def write_package(jobs: Path) -> None:
    """Write what programs can import of voda, as this version has it, where all users can read it.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = UntrustedFolder(jobs, PACKAGE, uid=os.geteuid())
    for path in ("", "voda", "voda/callbacks"):
        folder.make(path, mode=0o755)
    for path, content in package_files().items():
        folder.write(path, content, mode=0o644)
