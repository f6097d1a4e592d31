"""Says which extra of voda is not installed, before one of its libraries is imported.

Rule: a library of an extra is imported by the modules that cannot do without it, and these only where they are used.
"""

from importlib.util import find_spec
from typing import Final, Literal

from voda.domain.errors import InvalidInput

_NEEDED: Final = {
    "kubernetes": ("kubernetes_asyncio", "a cluster of Kubernetes needs kubernetes-asyncio"),
    "nats": ("nats", "a log in NATS JetStream needs nats-py"),
    "postgres": ("asyncpg", "a log in PostgreSQL needs asyncpg"),
}
"""By extra: the module that it brings, and what needs it."""


def require(extra: Literal["kubernetes", "nats", "postgres"]) -> None:
    """Raise InvalidInput unless the libraries of an extra are installed."""
    module, what = _NEEDED[extra]
    if find_spec(module) is None:
        raise InvalidInput(f"{what}, which is not installed: pip install 'voda[{extra}]'")
