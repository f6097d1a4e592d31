"""What a long-running process does before others would wait for it."""

import subprocess
import sys

_ASKED = """
import asyncio, sys
from voda.app.runtime import load_solver
from voda.projections.learning.means import Point
from voda.projections.learning.scaling import fit_law

async def main():
    assert "scipy.optimize" not in sys.modules
    await load_solver(0.0)
    loaded = set(sys.modules)
    fit_law([Point(1, 100.0, 1), Point(2, 60.0, 1)])
    print([name for name in set(sys.modules) - loaded if name.startswith("scipy")])

asyncio.run(main())
"""


def test_first_estimate_when_the_solver_was_loaded_loads_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", _ASKED], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr
