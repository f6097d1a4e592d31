"""The only reader of the environment, and of which extras of voda are installed.

Rule: one function here reads each variable that voda knows, and callers pass its value on.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

from voda.domain.errors import InvalidInput

MACHINE_HOME: Final = Path("/var/lib/voda")
"""Folder of a voda that root runs for all users of the machine."""
MACHINE_SOCKET: Final = Path("/run/voda/voda.sock")
"""Where its users find it."""


def data_folder() -> Path | None:
    """Return the folder of public data sets that VODA_DATA names; None where it is unset or empty."""
    named = _variable("VODA_DATA")
    return Path(named).expanduser() if named else None


def home_folder() -> Path:
    """Return the folder of this machine's voda: VODA_HOME, else `voda` in the user's data folder, for root /var/lib.

    Root's data folder stays the one where its XDG_DATA_HOME is set, or where an older voda has left its log there.
    """
    if named := _variable("VODA_HOME"):
        return Path(named).expanduser()
    own = _user_data_folder()
    is_roots = os.geteuid() == 0 and not _variable("XDG_DATA_HOME") and not _is_of_root(own / "voda.db")
    return MACHINE_HOME if is_roots else own


def code_folder() -> Path:
    """Return where this user keeps the code of the jobs that are submitted: beside the log of an own voda, else in the
    user's data folder, which a voda for all users does not own.
    """
    home = home_folder()
    with suppress(OSError):
        if home.stat().st_uid == os.geteuid():
            return home.absolute() / "code"
    return _user_data_folder() / "code"


def server_url() -> str:
    """Return the server that VODA_SERVER names; empty where it is unset."""
    return _variable("VODA_SERVER")


def kubernetes_namespace() -> str:
    """Return the namespace of the cluster's voda that VODA_NAMESPACE names; empty where it is unset."""
    return _variable("VODA_NAMESPACE")


def token() -> str:
    """Return the access token in VODA_TOKEN; empty where it is unset."""
    return _variable("VODA_TOKEN")


def certificate() -> str:
    """Return the file of the certificate to trust that VODA_CA names; empty where it is unset."""
    return _variable("VODA_CA")


def log() -> str:
    """Return the path or URL of the log that VODA_LOG names; empty where it is unset."""
    return _variable("VODA_LOG")


def archive() -> Path | None:
    """Return the folder of the log's archive that VODA_ARCHIVE names; None where it is unset."""
    named = _variable("VODA_ARCHIVE")
    return Path(named).expanduser() if named else None


class PodName(NamedTuple):
    """The pod that this process runs in, as its manifest says; empty outside of one."""

    name: str
    namespace: str


def pod() -> PodName:
    """Return the pod that POD_NAME and POD_NAMESPACE name."""
    return PodName(_variable("POD_NAME"), _variable("POD_NAMESPACE"))


def kubeconfig() -> Path | None:
    """Return the file that KUBECONFIG names, else ~/.kube/config; None inside a pod, or where neither is there."""
    if named := _variable("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if not _variable("KUBERNETES_SERVICE_HOST") and usual.exists() else None


def has_screen() -> bool:
    """Return whether a browser that is started here has a screen of its own."""
    return sys.platform == "darwin" or bool(_variable("DISPLAY") or _variable("WAYLAND_DISPLAY"))


def environment() -> Mapping[str, str]:
    """Return the whole environment, for the processes that are started here."""
    return dict(os.environ)


def _user_data_folder() -> Path:
    try:
        import platformdirs
    except ImportError:
        # The client alone, in a program that has nothing else of voda's environment.
        return Path(_variable("XDG_DATA_HOME") or "~/.local/share").expanduser() / "voda"
    return platformdirs.user_data_path("voda")


_OF_EXTRAS: Final = {
    "kubernetes": ("kubernetes_asyncio", "kubernetes-asyncio", "a cluster of Kubernetes"),
    "nats": ("nats", "nats-py", "a log in NATS JetStream"),
    "postgres": ("asyncpg", "asyncpg", "a log in PostgreSQL"),
}
"""By extra: the module that it brings, the package that has it, and what needs it."""


def require(extra: Literal["kubernetes", "nats", "postgres"]) -> None:
    """Raise InvalidInput unless the libraries of an extra are installed."""
    module, package, what = _OF_EXTRAS[extra]
    if find_spec(module) is None:
        lack = f"{what} needs {package}, which is not installed"
        raise InvalidInput(f"{lack}: pip install {package} (voda's extra {extra})")


def _is_of_root(file: Path) -> bool:
    # After sudo, HOME may be that of another user.
    try:
        return file.stat().st_uid == 0
    except OSError:
        return False


def _variable(variable: str) -> str:
    return os.environ.get(variable, "").strip()
