"""The package `voda` for programs whose Python has none: `voda.report` and `voda.callbacks`, and nothing else.

This file is copied to be the `__init__` of that package, whose folder is on PYTHONPATH. It stands alone, and needs
Python 3.8. Rule: PYTHONPATH goes before what is installed, so a voda that is found behind this folder takes its place.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = [os.path.abspath(folder) for folder in sys.path]
_BEHIND = sys.path[_FOLDERS.index(_FOLDER) + 1 :] if _FOLDER in _FOLDERS else []
_INSTALLED = PathFinder.find_spec(__name__, _BEHIND)

# A folder of that name without an __init__ has no origin: no voda is installed there.
if _INSTALLED is not None and _INSTALLED.origin and _INSTALLED.loader is not None:
    sys.modules[__name__] = module_from_spec(_INSTALLED)
    _INSTALLED.loader.exec_module(sys.modules[__name__])
