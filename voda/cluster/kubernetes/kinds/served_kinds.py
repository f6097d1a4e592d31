"""Which kinds of jobs a cluster can run, by what its API server says it serves. Pure.

Rule: discovery, which every token allows, is enough; nothing else is asked of the server.
"""

from collections.abc import Iterable, Mapping
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
GROUPS: Final = tuple(dict.fromkeys(f"/apis/{kind.api_version.partition('/')[0]}" for kind in KINDS))
"""Paths to ask first: of the groups that the kinds are in."""


def version_paths(groups: Iterable[Mapping[str, Any] | None]) -> tuple[str, ...]:
    """Return the paths to ask for next: of the versions that voda knows and the server has, by its answers to GET
    `GROUPS`.
    """
    known = dict.fromkeys(kind.api_version for kind in KINDS)
    versions = [version for group in groups for version in _list(group, "versions")]
    there = {version.get("groupVersion") for version in versions if isinstance(version, Mapping)}
    return tuple(f"/apis/{version}" for version in known if version in there)


def served(resources: Mapping[str, Mapping[str, Any] | None]) -> dict[str, JobKind]:
    """Return the kinds that the cluster can run, by name; `resources` are the answers to GET of `version_paths`."""
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
    listed = [each for each in _list(resources, "resources") if isinstance(each, Mapping)]
    return frozenset(str(each.get("name")) for each in listed if each.get("kind") == kind)


def _list(answer: Mapping[str, Any] | None, field: str) -> list[Any]:
    found = answer.get(field) if answer is not None else None
    return found if isinstance(found, list) else []
