"""What every program of a job can import where no voda is installed: `voda.report` and `voda.callbacks`.

Rule: the folder that holds them comes last on PYTHONPATH, and holds copies, since users may be unable to read where
voda is installed.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from voda import callbacks, report
from voda.programs import stand_in


def package_files() -> Mapping[str, bytes]:
    """Return path -> content of the files of the folder."""
    here = {"voda/__init__.py": Path(stand_in.__file__), "voda/report.py": Path(report.__file__)}
    here |= {f"voda/callbacks/{file.name}": file for file in Path(callbacks.__file__).parent.glob("*.py")}
    return {path: file.read_bytes() for path, file in here.items()}


def with_package(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of a program with the folder of these files at the end of PYTHONPATH."""
    path = [*filter(None, [environment.get("PYTHONPATH")]), str(folder)]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}
