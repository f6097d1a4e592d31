"""The only reader of the environment.

Rule: every variable voda knows is read by one function here, and what was found is passed on as a value.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


def data_folder() -> Path | None:
    """Return the folder of public data sets that VODA_DATA names; None where it is unset or empty."""
    named = _named("VODA_DATA")
    return Path(named).expanduser() if named else None


def home_folder() -> Path:
    """Return the folder of this machine's voda: VODA_HOME, else the user's data folder by the XDG convention."""
    if named := _named("VODA_HOME"):
        return Path(named).expanduser()
    data = _named("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "voda"


def server_url() -> str:
    """Return the server that VODA_SERVER names; empty where it is unset."""
    return _named("VODA_SERVER")


def token() -> str:
    """Return the access token in VODA_TOKEN; empty where it is unset."""
    return _named("VODA_TOKEN")


def certificate() -> str:
    """Return the file of the certificate to trust that VODA_CA names; empty where it is unset."""
    return _named("VODA_CA")


def log() -> str:
    """Return the path or URL of the log that VODA_LOG names; empty where it is unset."""
    return _named("VODA_LOG")


def archive() -> Path | None:
    """Return the folder of the log's archive that VODA_ARCHIVE names; None where it is unset."""
    named = _named("VODA_ARCHIVE")
    return Path(named).expanduser() if named else None


class PodIdentity(NamedTuple):
    """The pod this process runs in, as its manifest tells it; empty outside of one."""

    name: str
    namespace: str


def pod() -> PodIdentity:
    """Return the pod that POD_NAME and POD_NAMESPACE name."""
    return PodIdentity(_named("POD_NAME"), _named("POD_NAMESPACE"))


def kubeconfig() -> Path | None:
    """Return the file that KUBECONFIG names, else ~/.kube/config; None inside a pod, or where neither is there."""
    if named := _named("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if not _named("KUBERNETES_SERVICE_HOST") and usual.exists() else None


def environment() -> Mapping[str, str]:
    """Return the whole environment, for the processes that are started here."""
    return dict(os.environ)


def _named(variable: str) -> str:
    return os.environ.get(variable, "").strip()
