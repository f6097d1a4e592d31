"""Whatever tree is submitted: it is refused as invalid input, or everything that reads it later works."""

import copy
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import a_torch_job, an_mpi_job
from voda.domain.errors import InvalidInput
from voda.domain.job import validated
from voda.kinds.mpijob import V1, V2
from voda.kinds.pytorchjob import PyTorchJob
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import local_warnings
from voda.manifests.parse import parse
from voda.manifests.programs import expand_program, failure_policy, program
from voda.manifests.replicas import processes_per_replica

_ODD = st.sampled_from(["", "0", "1", "-1", "3", "4097", "1e3", "auto", "$(A)", "$(", "x" * 300, "a.b", "Worker", "é"])
_LEAVES = st.none() | st.booleans() | st.integers(-2, 5000) | st.floats() | _ODD | st.text(max_size=5)
_KEYS = st.sampled_from(["name", "value", "spec", "containers", "template", "replicas", "limits"]) | st.text(max_size=3)
_TREES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)
_ENV = {"NP": "2", "MIN_NP": "1", "MAX_NP": "4", "EPOCHS": "3", "JOB_PRIORITY": "1", "JOB_NAME": "a-1", "X": "$(NP)"}
_FULL = {
    "annotations": {"voda.dev/min-replicas": "1", "voda.dev/pool": "p", "voda.dev/priority": "1"},
    "env": _ENV,
    "container": {"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}}},
    "worker": {"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}}},
}
_MPI = an_mpi_job(
    **_FULL,
    spec={"slotsPerWorker": 2, "runPolicy": {"backoffLimit": 3, "suspend": False}, "elasticPolicy": {}},
)
_TORCH = a_torch_job(
    **_FULL,
    masters=1,
    spec={"nprocPerNode": "auto", "elasticPolicy": {"minReplicas": 1, "metrics": [], "rdzvConf": [{"key": "a"}]}},
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value of a tree but its root."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in pairs for found in [(*path, key), *paths_of(item, (*path, key))]]


def changed(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy with another value at a path."""
    result = copy.deepcopy(manifest)
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = copy.deepcopy(value)
    return result


def refuse_or_use(manifest: dict[str, Any]) -> None:
    """Parse a manifest, and use it as a cluster would if it is accepted."""
    try:
        parsed = parse(manifest)
    except InvalidInput:
        return
    assert validated(parsed.spec) is parsed.spec
    assert parsed.spec.gpus_per_replica >= 0
    for role in ("launcher", "worker", "master"):
        runs = program(parsed.job, role)
        if runs is not None:
            argv, env = expand_program(runs, {"VODA_JOB_NAME": "digits"})
            assert all(isinstance(word, str) for word in (*argv, *env, *env.values()))
    assert failure_policy(parsed.job).backoff_limit >= 0
    if isinstance(parsed.job, PyTorchJob):
        parsed.job.elastic_policy()
    assert processes_per_replica(parsed.job, parsed.spec.gpus_per_replica) >= 1
    warnings = [*parsed.warnings, *local_warnings(parsed)]
    for mpi in (V1, V2):
        with suppress(InvalidInput):
            warnings += kubernetes_warnings(parsed, {"MPIJob": mpi, "PyTorchJob": V1}, "nvidia.com/gpu")
    assert all(warning.field and warning.message for warning in warnings)


def test_manifests_that_are_changed_below_are_accepted_unchanged() -> None:
    for manifest in (_MPI, _TORCH):
        assert parse(manifest).spec.is_elastic


@settings(max_examples=400)
@given(st.data())
def test_manifest_when_any_of_its_values_is_replaced_is_refused_or_usable(data: st.DataObject) -> None:
    manifest = data.draw(st.sampled_from([_MPI, _TORCH]))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(paths_of(manifest)))
        manifest = changed(manifest, path, data.draw(_TREES))
    refuse_or_use(manifest)


@given(_TREES, _TREES)
def test_manifest_when_it_is_any_tree_is_refused_or_usable(metadata: Any, spec: Any) -> None:
    refuse_or_use({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": metadata, "spec": spec})
    refuse_or_use({"kind": metadata, "apiVersion": spec})
