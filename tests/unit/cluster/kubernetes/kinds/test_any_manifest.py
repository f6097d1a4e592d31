"""Whatever manifest was accepted: an object can be made of it, by either version, without a crash and repeatably."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kube.merge_patch import apply_patch
from tests.manifests import a_torch_job, an_mpi_job
from tests.unit.manifests.test_any_manifest import changed, paths_of
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.domain.errors import InvalidInput
from voda.manifests.parse import parse

_ODD = st.none() | st.booleans() | st.integers(0, 9) | st.floats() | st.text(max_size=3)
_TREES = st.recursive(
    _ODD, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)
_POD = {"tolerations": [{"key": "x", "operator": "Exists"}], "nodeName": "n", "schedulerName": "s"}
_META = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
ENVIRONMENT = {"VODA_JOB_ID": "digits"}


def full(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest that has a value in all places that are written to."""
    manifest["metadata"]["labels"] = {"team": "vision"}
    for specs in ("mpiReplicaSpecs", "pytorchReplicaSpecs"):
        for role in manifest["spec"].get(specs, {}).values():
            role["restartPolicy"] = "Never"
            role["template"] = {"metadata": copy.deepcopy(_META), "spec": {**role["template"]["spec"], **_POD}}
    return manifest


_POLICY = {"runPolicy": {"suspend": False, "managedBy": "", "backoffLimit": 1}}
_MANIFESTS = (
    full(an_mpi_job(env={"X": "1"}, spec=_POLICY | {"sshAuthMountPath": "/x"})),
    full(an_mpi_job(api_version="kubeflow.org/v1", env={"X": "1"}, spec=_POLICY | {"cleanPodPolicy": "All"})),
    full(a_torch_job(masters=1, env={"X": "1"}, spec=_POLICY | {"elasticPolicy": {"minReplicas": 1}})),
)


@settings(max_examples=300)
@given(st.data())
def test_accepted_manifest_with_an_odd_value_makes_an_object_that_needs_no_more(
    data: st.DataObject,
) -> None:
    manifest = data.draw(st.sampled_from(_MANIFESTS))
    manifest = changed(manifest, data.draw(st.sampled_from(paths_of(manifest))), data.draw(_TREES))
    try:
        spec = parse(manifest).spec
    except InvalidInput:
        return
    kinds: tuple[JobKind, ...] = (PyTorchJobV1(),) if spec.kind == "PyTorchJob" else (MPIJobV1(), MPIJobV2())
    for kind in kinds:
        made = kind.new_object(spec, GPU_TAINTS, ENVIRONMENT)
        assert made["spec"]["runPolicy"]["suspend"] is True
        patch = kind.adoption_patch(made, spec, GPU_TAINTS, ENVIRONMENT)
        again = apply_patch(made, patch.body)
        assert kind.adoption_patch(again, spec, GPU_TAINTS, ENVIRONMENT).body == {}
        assert made["spec"] == again["spec"], "what was made for the API is ready as it is"
