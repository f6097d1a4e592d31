"""What users of a voda that root runs for all of them can reach: voda's own Python, and the programs on its PATH.

Rule: only paths that root has chosen are looked at: one that a user names could hang the service.
"""

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from voda import config
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ParsedManifest

_PACKAGE: Final = Path(__file__).parents[1]
_FOR_ALL: Final = "/opt/voda"


def obstacle(path: Path) -> Path | None:
    """Return the folder that keeps users other than root from reaching a path, as it is named or where it leads."""
    for named in dict.fromkeys((Path(os.path.abspath(path)), path.resolve())):
        for folder in reversed(named.parents):
            try:
                if not folder.stat().st_mode & stat.S_IXOTH:
                    return folder
            except OSError:
                break
    return None


def python_warning(python: Path = Path(sys.executable), package: Path = _PACKAGE) -> str:
    """Return a sentence where users cannot run the Python that runs voda, or read voda; empty where they can."""
    for path in (python, package):
        if (shut := obstacle(path)) is not None:
            return (
                f"warning: users cannot reach {path}, because {shut} lets only its owner in: their jobs can use neither"
                " this Python nor what is installed with it (voda run, voda.report, torchrun). Install voda where"
                f" everybody may read, and start it there: {_installation(python, package)}"
            )
    return ""


def _installation(python: Path, package: Path) -> str:
    """Return the command that installs this voda where everybody may read."""
    system = " PYTHON=/usr/bin/python3" if obstacle(python.resolve()) else ""
    if not (package.parent / "Makefile").is_file():
        return f"/usr/bin/python3 -m venv {_FOR_ALL} && {_FOR_ALL}/bin/pip install VODA, VODA as this one was installed"
    checkout = f"git clone {shlex.quote(str(package.parent))} {_FOR_ALL} && make -C {_FOR_ALL}{system} setup"
    return f"{checkout} && {_FOR_ALL}/.venv/bin/voda up"


def reach_warnings(home: Path) -> list[str]:
    """Return a sentence for each of what users need and cannot reach: voda's Python, their jobs below its folder."""
    shut = obstacle(home)
    folders = f"warning: users cannot pass {shut}, so they reach no folder of their jobs in {home}" if shut else ""
    return [line for line in (python_warning(), folders) if line]


def program_warnings(parsed: ParsedManifest, path: str) -> Iterator[FieldWarning]:
    """Yield the commands of a manifest that are found on voda's PATH where users cannot reach them.

    A job that brings a PATH of its own knows what it does; one of root reaches everything.
    """
    if parsed.spec.user == "root":
        return
    job = parsed.job
    for role in (role for role in job.roles if role in job.local_roles):
        index, container = job.main_container(role)
        words = [*(container.command or ()), *(container.args or ())]
        if not words or "/" in words[0] or any(variable.name == "PATH" for variable in container.env or ()):
            continue
        found = shutil.which(words[0], path=path)
        if found is not None and (shut := obstacle(Path(found))) is not None:
            yield FieldWarning(
                field=f"{job.path(role)}.template.spec.containers[{index}].command",
                message=f"{words[0]} is {found} on the PATH of voda, where you may not get to ({shut} lets only its"
                " owner in): give it a PATH of yours (in its env), or write the program's whole path",
            )


def other_voda(socket: Path = config.MACHINE_SOCKET) -> str:
    """Return a sentence for a voda of one user where root runs one for all; empty where it does not."""
    try:
        is_there = socket.is_socket()
    except OSError:
        is_there = False
    if not is_there:
        return ""
    return (
        f"root runs a voda for all users here, too: your commands ask this one as long as it runs, and root's with"
        f" --server unix://{socket}"
    )
