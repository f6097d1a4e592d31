"""Claims about manifests on their way to the server."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from voda.cli.manifests import (
    Document,
    in_namespace,
    jobs_of,
    read_manifests,
    with_name_and_annotations,
    with_working_dir,
)
from voda.domain.errors import InvalidField

TWO = """\
# a comment first
---
kind: MPIJob
metadata: {name: one, annotations: {note: "2026-01-31", date: 2026-01-31}}
--- # another
kind: PyTorchJob
metadata: {name: two}
script: |
  echo '---'
   ---
...
"""


def a_document(**container: str) -> Document:
    template = {"spec": {"containers": [{"name": "main", **container}]}}
    manifest = {"metadata": {"name": "a"}, "spec": {"mpiReplicaSpecs": {"Launcher": {"template": template}}}}
    return Document(source="a.yaml", manifest=manifest)


def annotations_of(document: Document) -> object:
    return document.manifest["metadata"].get("annotations")


def test_documents_of_a_file_are_found_by_their_markers(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    first, second = read_manifests([str(file)]).documents
    assert (first.manifest["kind"], second.manifest["kind"]) == ("MPIJob", "PyTorchJob")
    assert first.manifest["metadata"]["annotations"] == {"note": "2026-01-31", "date": "2026-01-31"}
    assert second.manifest["script"] == "echo '---'\n ---\n"


def test_documents_of_standard_input_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"kind": "MPIJob"}')))
    assert [one.manifest for one in read_manifests(["-"]).documents] == [{"kind": "MPIJob"}]


WITH_OTHERS = """# Source: train/templates/script.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: ft}
data: {train.py: "print(1)"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: ft}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ft}
"""


def test_job_is_taken_from_a_stream_with_what_belongs_to_it(tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(WITH_OTHERS)
    jobs, others = jobs_of(read_manifests([str(file)]))
    assert [one.manifest["kind"] for one in jobs.documents] == ["Job"]
    assert others == ["ConfigMap ft", "Role ft"]


@pytest.mark.parametrize(
    "other", ["apiVersion: kubeflow.org/v1\nkind: TFJob", "kind: [Job]\napiVersion: x.org/v1", "a: 1"]
)
def test_stream_with_what_another_operator_would_run_stays_whole(tmp_path: Path, other: str) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(f"{WITH_OTHERS}---\n{other}\n")
    jobs, others = jobs_of(read_manifests([str(file)]))
    assert (len(jobs.documents), others) == (4, ())


def test_stream_without_a_job_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ft}\n")
    assert len(jobs_of(read_manifests([str(file)]))[0].documents) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a: 1\n---\nb: [", "document 2: line "),
        (b"# nothing\n---\n", "holds no manifest"),
        (b"\xff\xfe", "no UTF-8 text"),
        (b"- a\n", "expected a mapping"),
    ],
)
def test_file_when_it_cannot_be_read_is_named(tmp_path: Path, text: bytes, sentence: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(text)
    (refused,) = read_manifests([str(file)]).refused
    assert sentence in str(refused)
    assert "bad.yaml" in str(refused)


def test_error_in_a_later_document_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("a: 1\n---\nb: 2\nb: 3\n")
    (refused,) = read_manifests([str(file)]).refused
    assert "line 4" in str(refused)


def test_wishes_become_the_name_and_annotations_beside_those_there_are() -> None:
    document = Document(source="a", manifest={"metadata": {"name": "a", "annotations": {"x": "1"}}, "spec": {}})
    wished = with_name_and_annotations(document, name="b", annotations={"voda.dev/max-replicas": "4"})
    assert wished.manifest["metadata"] == {"name": "b", "annotations": {"x": "1", "voda.dev/max-replicas": "4"}}
    assert document.manifest["metadata"]["name"] == "a"
    assert with_name_and_annotations(document, name="", annotations={}) is document


def test_working_dir_is_told_where_a_container_names_none() -> None:
    assert annotations_of(with_working_dir(a_document(), "/here")) == {"voda.dev/working-dir": "/here"}
    assert annotations_of(with_working_dir(a_document(workingDir="/there"), "/here")) is None
    told = with_name_and_annotations(a_document(), name="", annotations={"voda.dev/working-dir": "/mine"})
    assert annotations_of(with_working_dir(told, "/here")) == {"voda.dev/working-dir": "/mine"}


@pytest.mark.parametrize("manifest", [{}, {"spec": 3}, {"spec": {"mpiReplicaSpecs": [1]}}, {"metadata": 3, "spec": {}}])
def test_working_dir_of_what_is_no_job_leaves_it_to_the_server(manifest: dict[str, object]) -> None:
    document = Document(source="a", manifest=manifest)
    assert with_working_dir(document, "/here") is document


def test_namespace_is_that_asked_for_where_the_manifest_names_none() -> None:
    document = in_namespace(a_document(), "vision")
    assert document.manifest["metadata"]["namespace"] == "vision"
    assert in_namespace(document, "") is document
    assert in_namespace(document, "vision").manifest == document.manifest
    with pytest.raises(InvalidField, match=r"metadata.namespace: expected 'audio', as asked, got 'vision'"):
        in_namespace(document, "audio")
