"""How many replicas a job may have, and what else its annotations and environment ask for.

Rule: annotations win over the environment, the environment over elasticPolicy, and that over `replicas`; every value
remembers the path it came from. The environment counts processes, everything else counts replicas.
"""

import re

from msgspec import Struct

from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS
from voda.manifests.container import expanded_env
from voda.manifests.programs import elastic_limits, env_pairs, main_container, replica_count
from voda.manifests.read.schema import PyTorchJob, Shape
from voda.manifests.resources import processes_per_replica

_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
# Wish -> its annotation and its variables, the newer name first.
_SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "least": ("voda.dev/min-replicas", ("MIN_NUM_PROC", "MIN_NP")),
    "most": ("voda.dev/max-replicas", ("MAX_NUM_PROC", "MAX_NP")),
    "requested": ("", ("NUM_PROC", "NP")),
    "epochs": ("voda.dev/epochs", ("EPOCHS",)),
    "priority": ("voda.dev/priority", ("JOB_PRIORITY",)),
    "pool": ("voda.dev/pool", ()),
    "category": ("", ("JOB_NAME",)),
}
VARIABLES = frozenset(name for _, names in _SOURCES.values() for name in names)


class Wish(Struct, frozen=True):
    """A value somebody wrote, and where."""

    text: str
    path: str
    is_env: bool = False
    """Then it counts processes."""


class Limits(Struct, frozen=True):
    """Least, most and requested replicas."""

    least: int
    most: int
    requested: int


class Wishes:
    """What the annotations, and the environment of the container that comes first, ask for."""

    def __init__(self, job: Shape) -> None:
        self._annotations = job.metadata.annotations or {}
        self._env = _environment(job)

    def of(self, what: str) -> Wish | None:
        """Return the value that counts for least, most, requested, epochs, priority, pool or category."""
        annotation, variables = _SOURCES[what]
        if annotation in self._annotations:
            return Wish(self._annotations[annotation], f"metadata.annotations[{annotation}]")
        return next((self._env[name] for name in variables if name in self._env), None)


class _Bound(Struct, frozen=True):
    """A limit in replicas, and what was written where."""

    replicas: int
    path: str
    written: int
    source: str
    """annotation, env, elasticPolicy or replicas."""


def limits_of(job: Shape, wishes: Wishes) -> Limits:
    """Return the limits a job asks for, in replicas; a Master counts as one.

    Raises:
        InvalidField: a value is no number or out of bounds, or least is more than most.
    """
    asked = _wished(job, wishes, "requested")
    plain = asked or _written(replica_count(job), _replicas_path(job), "replicas")
    least, most = _wished(job, wishes, "least"), _wished(job, wishes, "most")
    elastic_least, elastic_most = _elastic(job)
    least, most = least or elastic_least, most or elastic_most
    if least is None:
        least = plain if most is None or plain.replicas <= most.replicas else most
    if most is None:
        most = plain if plain.replicas >= least.replicas else least
    _refuse_crossed(least, most)
    # Processes are rounded up for the least and down for the most, which may cross where both are the same.
    greatest = max(most.replicas, least.replicas)
    _refuse_growth_without_workers(job, greatest, most.path)
    return Limits(least.replicas, greatest, _requested(asked, plain, (least, most)))


def count(wish: Wish, *, least: int, most: int) -> int:
    """Return the whole number a wish holds, within bounds."""
    text = wish.text.strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidField(wish.path, f"{wish.path}: expected a whole number, got {wish.text[:60]!r}")
    return _bounded(int(text), wish.path, least, most)


def _wished(job: Shape, wishes: Wishes, what: str) -> _Bound | None:
    wish = wishes.of(what)
    if wish is None:
        return None
    if not wish.is_env:
        written = count(wish, least=1, most=MOST_REPLICAS)
        return _Bound(written, wish.path, written, "annotation")
    processes = processes_per_replica(job)
    written = count(wish, least=1, most=MOST_REPLICAS * processes)
    replicas = max(written // processes, 1) if what == "most" else -(-written // processes)
    return _Bound(replicas, wish.path, written, "env")


def _elastic(job: Shape) -> tuple[_Bound | None, _Bound | None]:
    elastic = job.spec.elastic_policy if isinstance(job, PyTorchJob) else None
    if elastic is None or (elastic.min_replicas is None and elastic.max_replicas is None):
        return None, None
    least, most = elastic_limits(elastic, 1)
    least_field = "minReplicas" if elastic.min_replicas is not None else "maxReplicas"
    most_field = "maxReplicas" if elastic.max_replicas is not None else "minReplicas"
    return (
        _written(least, f"spec.elasticPolicy.{least_field}", "elasticPolicy"),
        _written(most, f"spec.elasticPolicy.{most_field}", "elasticPolicy"),
    )


def _refuse_crossed(least: _Bound, most: _Bound) -> None:
    is_rounded = least.source == most.source == "env"
    low, high = (least.written, most.written) if is_rounded else (least.replicas, most.replicas)
    if low > high:
        raise InvalidField(
            most.path, f"{most.path}: expected no less than {low}, which {least.path} asks for at least, got {high}"
        )


def _refuse_growth_without_workers(job: Shape, most: int, path: str) -> None:
    if most > 1 and "Worker" not in job.roles:
        field = f"{job.replica_specs}.Worker"
        raise InvalidField(field, f"{field} is missing: {path} asks for {most} replicas, and a Master alone is one")


def _requested(asked: _Bound | None, plain: _Bound, limits: tuple[_Bound, _Bound]) -> int:
    """Return the size for policies that do not resize: NUM_PROC, else MIN_NUM_PROC, else the manifest's own."""
    least, most = limits
    greatest = max(most.replicas, least.replicas)
    if asked is None and least.source == "env":
        return least.replicas
    is_outside = not least.replicas <= plain.replicas <= greatest
    if asked is not None and is_outside and "annotation" not in (least.source, most.source):
        raise InvalidField(
            asked.path,
            f"{asked.path}: expected {least.written} ({least.path}) to {most.written} ({most.path}),"
            f" got {asked.written}",
        )
    return min(max(plain.replicas, least.replicas), greatest)


def _environment(job: Shape) -> dict[str, Wish]:
    """Return the variables that voda reads, expanded, each with its path."""
    role = next(iter(job.roles))
    index, container = main_container(job, job.roles[role])
    path = f"{job.replica_specs}.{role}.template.spec.containers[{index}].env"
    places = {each.name: place for place, each in enumerate(container.env or ()) if each.name in VARIABLES}
    if not places:
        return {}
    env = expanded_env(env_pairs(container, job.metadata.namespace or "default"), {})
    return {name: Wish(env[name], f"{path}[{place}].value", True) for name, place in places.items() if name in env}


def _replicas_path(job: Shape) -> str:
    return f"{job.replica_specs}.{'Worker' if 'Worker' in job.roles else 'Master'}.replicas"


def _written(replicas: int, path: str, source: str) -> _Bound:
    return _Bound(_bounded(replicas, path, 1, MOST_REPLICAS), path, replicas, source)


def _bounded(value: int, path: str, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidField(path, f"{path}: expected {least} to {most}, got {value}")
    return value
