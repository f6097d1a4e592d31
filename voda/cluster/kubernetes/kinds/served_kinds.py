"""Which kinds of jobs can be run in a cluster, by what its API server says it serves. Pure.

Rule: whoever may discover (everybody who has a token may) is asked for nothing else.
"""

from collections.abc import Mapping
from typing import Any, Final

from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob_v1 import MPIJobV1
from voda.cluster.kubernetes.kinds.mpijob_v2 import MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1

GROUP: Final = "/apis/kubeflow.org"
KINDS: Final[tuple[JobKind, ...]] = (MPIJobV2(), MPIJobV1(), PyTorchJobV1())
"""Of two versions of one kind the one that comes first is taken."""


def version_paths(group: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return what to ask for next.

    Args:
        group: the answer to GET `GROUP`; None where there is no such group.

    Returns:
        Paths of the versions that voda knows and the server has.
    """
    known = dict.fromkeys(kind.api_version for kind in KINDS)
    versions = _list(group, "versions")
    there = {version.get("groupVersion") for version in versions if isinstance(version, Mapping)}
    return tuple(f"/apis/{version}" for version in known if version in there)


def served(resources: Mapping[str, Mapping[str, Any] | None]) -> dict[str, JobKind]:
    """Return MPIJob and PyTorchJob, as far as they can be run.

    Args:
        resources: path of `version_paths` -> the answer to GET of it; None where it is not there any more.
    """
    found: dict[str, JobKind] = {}
    for kind in KINDS:
        if kind.plural in _plurals(resources.get(f"/apis/{kind.api_version}"), kind.name):
            found.setdefault(kind.name, kind)
    return found


def trouble(kinds: Mapping[str, JobKind]) -> str:
    """Return why no job can be run, one sentence; empty where some can."""
    if kinds:
        return ""
    return (
        "the cluster serves no MPIJob (kubeflow.org/v2beta1 or v1) and no PyTorchJob (kubeflow.org/v1): install"
        " mpi-operator or training-operator"
    )


def _plurals(resources: Mapping[str, Any] | None, kind: str) -> frozenset[str]:
    listed = [each for each in _list(resources, "resources") if isinstance(each, Mapping)]
    return frozenset(str(each.get("name")) for each in listed if each.get("kind") == kind)


def _list(answer: Mapping[str, Any] | None, field: str) -> list[Any]:
    found = answer.get(field) if answer is not None else None
    return found if isinstance(found, list) else []
