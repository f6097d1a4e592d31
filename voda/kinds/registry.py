"""The kinds by name. Rule: to add a kind is to add a file to this folder; there is no list to edit."""

from typing import Final

import voda.kinds
from voda.domain.plugins import classes_in
from voda.kinds.base import JobManifest

KINDS: Final[dict[str, type[JobManifest]]] = {
    kind.name: kind for kind in classes_in(voda.kinds) if issubclass(kind, JobManifest) and hasattr(kind, "name")
}
"""Name, such as MPIJob -> kind."""
