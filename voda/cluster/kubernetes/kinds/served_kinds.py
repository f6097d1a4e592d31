"""Which kinds of jobs a cluster can run, by what its API server says it serves. Pure.

Rule: discovery, which every token allows, is enough; nothing else is asked of the server.
"""

from collections.abc import Mapping
from typing import Any, Final

from voda.cluster.kubernetes import kinds
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.domain.plugins import classes_in
from voda.kinds.registry import KINDS as ALL_KINDS

_FOUND: Final[list[type[JobKind]]] = [
    each for each in classes_in(kinds) if issubclass(each, JobKind) and hasattr(each, "api_version")
]
KINDS: Final[tuple[JobKind, ...]] = tuple(
    each() for each in sorted(_FOUND, key=lambda each: each.kind.versions.index(each.api_version))
)
"""Found by their files; of two versions of one kind the one that comes first is taken."""
VERSION_PATHS: Final = tuple(dict.fromkeys(f"/apis/{kind.api_version}" for kind in KINDS))
"""Paths to ask: of the versions that the kinds are in; what is not served is not found."""


def served(resources: Mapping[str, Mapping[str, Any] | None]) -> dict[str, JobKind]:
    """Return the kinds that the cluster can run, by name; `resources` are the answers to GET of `VERSION_PATHS`."""
    found: dict[str, JobKind] = {}
    for kind in KINDS:
        if kind.kind.plural in _plurals(resources.get(f"/apis/{kind.api_version}"), kind.name):
            found.setdefault(kind.name, kind)
    return found


def failure(kinds: Mapping[str, JobKind]) -> str:
    """Return why no job can be run, one sentence; empty where some can."""
    if kinds:
        return ""
    missing = " and ".join(f"no {kind.name} ({' or '.join(kind.versions)})" for kind in ALL_KINDS.values())
    return f"the cluster serves {missing}"


def _plurals(resources: Mapping[str, Any] | None, kind: str) -> frozenset[str]:
    listed = resources.get("resources") if resources is not None else None
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return frozenset(str(each.get("name")) for each in found if each.get("kind") == kind)
