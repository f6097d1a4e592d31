"""The pure core, once imported, has brought no shell with it.

import-linter sees the import statements; this sees what an import really loads, `__init__.py` included.
"""

import json
import subprocess
import sys

import pytest

PURE = [
    "voda.domain",
    "voda.projections",
    "voda.policies",
    "voda.placement",
    "voda.sharing",
    "voda.cells",
    "voda.planner",
    "voda.kinds",
    "voda.manifests",
    "voda.programs.launchers",
    "voda.programs.program_manifest",
    "voda.cluster.kubernetes.state.job_annotations",
    "voda.operator.authorization.pod_security",
    "voda.operator.authorization.pod_templates",
    "voda.operator.status.kube_events",
    "voda.operator.status.job_states",
    "voda.cluster.kubernetes.state.nodes",
    "voda.kinds.quantities",
    "voda.operator.status.event_messages",
    "voda.cluster.kubernetes.state.job_pods",
    "voda.reconcilers.diff",
    "voda.reconcilers.resync",
    "voda.events.types",
    "voda.events.envelope",
    "voda.events.codec",
]
# numpy, scipy and msgspec load time, socket and logging themselves; those only the linter can watch.
SHELL = {"aiohttp", "aiosqlite", "asyncio", "asyncpg", "kubernetes_asyncio", "nats", "sqlalchemy"}

IMPORT_AND_LIST = """
import importlib, json, pkgutil, sys
imported = []
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    imported.append(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(found.name)
        imported.append(found.name)
print(json.dumps([imported, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def after_import() -> tuple[list[str], list[str]]:
    """The pure modules imported in a fresh interpreter, and everything that was then loaded."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_LIST, *PURE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, loaded = json.loads(done.stdout)
    return imported, loaded


def test_pure_core_when_imported_loads_no_shell_library(after_import: tuple[list[str], list[str]]) -> None:
    _, loaded = after_import
    assert SHELL.isdisjoint(loaded)


def test_pure_core_when_imported_includes_every_module_of_its_packages(
    after_import: tuple[list[str], list[str]],
) -> None:
    imported, _ = after_import
    assert set(PURE) < set(imported)
