"""Programs that are submitted without a manifest, against the real API."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.served import Server, served
from voda.domain.errors import AlreadyExists, InvalidInput
from voda.events.types import JobCompleted
from voda.kinds.base import FieldWarning
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.parse import ParsedManifest
from voda.programs import kept_code


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that commands are called in, with a script for torchrun and a plain one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch.distributed\n")
    (tmp_path / "plain_fit.py").write_text("print(1)\n")
    return tmp_path


@pytest.fixture
def torchrun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a torchrun on the PATH, and a Python that lacks nothing, whatever this machine has."""
    for name in ("torchrun", "python"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.usefixtures("torchrun")
def test_program_that_begins_once_begins_with_the_least_and_keeps_it(empty: Server) -> None:
    told = empty.voda("submit", "--restartable", "Never", "--workers", "1-4", "--", "python", "train.py")
    assert told.stdout == "train submitted: 1 to 4 workers (not restartable: it begins with 1, and keeps that)\n"
    described = " ".join(empty.voda("describe", "train").stdout.split())
    assert "once its program has begun, it is not stopped for others, resized or begun again" in described
    refused = empty.voda("submit", "--restartable", "no", "--", "python", "train.py", exit_code=2)
    assert "'--restartable': expected one of never, always, got 'no'" in " ".join(refused.stderr.split())


SECTION = {"enabled": True, "version": 0.1, "max_train_batch_size": 16, "micro_batch_sizes": [2, 4]}


@pytest.mark.usefixtures("torchrun")
def test_program_with_a_configuration_of_deepspeed_runs_at_its_sizes(empty: Server, folder: Path) -> None:
    (folder / "ds.json").write_text(json.dumps({"elasticity": SECTION}))
    told = empty.voda("submit", "--deepspeed", "ds.json", "--gpus-per-worker", "2", "--", "python", "train.py")
    assert told.stdout == "train submitted: 1,2,4 workers of 2 GPUs\n"
    assert "voda: DeepSpeed 0.19.8 and later refuse the elastic section: the program needs 0.19.7 or an older one" in (
        told.stderr.splitlines()
    )
    job = msgspec.json.decode(empty.voda("get", "train", "-o", "json").stdout)
    assert (job["min_replicas"], job["max_replicas"], job["sizes"]) == (1, 4, "1,2,4")
    some = ["submit", "--name", "some", "--deepspeed", "ds.json", "--workers", "2-8", "-o", "json"]
    job = msgspec.json.decode(empty.voda(*some, "--", "python", "train.py").stdout)["job"]
    assert (job["min_replicas"], job["max_replicas"], job["sizes"]) == (2, 8, "2,4,8")
    (folder / "job.yaml").write_text(empty.voda("submit", "--print", "--workers", "2", "--", "train.py").stdout)
    edited = yaml.safe_load((folder / "job.yaml").read_text())
    for bound in ("min", "max"):
        del edited["metadata"]["annotations"][f"voda.dev/{bound}-replicas"]
    (folder / "job.yaml").write_text(yaml.safe_dump(edited))
    of_manifest = ["submit", "job.yaml", "--name", "third", "--deepspeed", "ds.json", "-o", "json"]
    assert msgspec.json.decode(empty.voda(*of_manifest).stdout)["job"]["sizes"] == "1,2,4,8"


@pytest.mark.usefixtures("torchrun")
@pytest.mark.parametrize(
    ("section", "workers", "sentence"),
    [
        ({**SECTION, "version": 0.2}, "", "elasticity.version: expected 0.1, the one that counts GPUs alone, got 0.2"),
        (
            None,
            "",
            "expected DeepSpeed's configuration with a section elasticity, got none: give the"
            " sizes by --workers 1,2,4 (in a manifest: voda.dev/sizes)",
        ),
        (SECTION, "3", "--workers: expected some of the sizes of ds.json, 1,2,4,8, got 3"),
    ],
)
def test_configuration_of_deepspeed_without_sizes_is_refused(
    section: object, workers: str, sentence: str, empty: Server, folder: Path
) -> None:
    (folder / "ds.json").write_text(json.dumps({"elasticity": section}))
    words = ["--workers", workers] if workers else []
    with pytest.raises(InvalidInput) as refused:
        empty.voda("submit", "--deepspeed", "ds.json", *words, "--", "python", "train.py")
    assert str(refused.value).removeprefix("ds.json: ") == sentence


@pytest.mark.usefixtures("torchrun")
def test_mpi_program_that_runs_at_some_sizes_is_kept_at_them_by_its_launcher(empty: Server) -> None:
    command = ["--workers", "1,2,4", "--gpus-per-worker", "2", "--launcher", "mpirun", "--", "python", "train.py"]
    printed = yaml.safe_load(empty.voda("submit", "--print", *command).stdout)
    [launcher] = printed["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    words = launcher["command"]
    assert words[2:8] == ["--min-np", "2", "--max-np", "8", "--sizes", "2,4,8"]
    assert printed["metadata"]["annotations"]["voda.dev/sizes"] == "1,2,4"


@pytest.mark.usefixtures("torchrun")
def test_submit_says_how_the_program_is_started_and_why(empty: Server) -> None:
    told = empty.voda("submit", "--workers", "1-4", "--epochs", "9", "--", "python", "train.py", "--name", "x")
    assert told.stdout == "train submitted: 1 to 4 workers, 9 epochs\n"
    assert told.stderr.splitlines()[0] == (
        "voda: runs train.py with torchrun, because it imports torch.distributed; --launcher chooses another"
    )


def test_submit_of_the_manifest_that_print_shows_is_the_same_job(empty: Server, folder: Path) -> None:
    command = ["--workers", "2", "--gpus-per-worker", "2", "--env", "A=$(B)", "--time", "4h", "--", "train.py", "a\nb"]
    (folder / "job.yaml").write_text(empty.voda("submit", "--print", *command).stdout)
    assert empty.voda("get", "--all", "-o", "name").stdout == ""
    jobs = []
    for arguments in (["job.yaml", "--name", "one"], ["--name", "one", *command]):
        job = msgspec.json.decode(empty.voda("submit", "--dry-run", "-o", "json", *arguments).stdout)["job"]
        jobs.append({key: value for key, value in job.items() if not key.endswith("_at") and key != "version"})
    assert jobs[0] == jobs[1]


@pytest.mark.usefixtures("torchrun")
@pytest.mark.parametrize(
    ("workers", "line", "is_warned"),
    [("1-4", "", True), ("2", "", False), ("1-4", "path = VODA_JOB_DIR / 'Checkpoint.pt'", False)],
)
def test_submit_of_an_elastic_program_that_says_nothing_of_checkpoints_warns(
    workers: str, line: str, is_warned: bool, empty: Server, folder: Path
) -> None:
    (folder / "forgets.py").write_text(f"import torch.distributed\n{line}\n")
    told = empty.voda("submit", "--workers", workers, "--dry-run", "--", "python", "forgets.py")
    warning = "warning: each resize starts forgets.py anew, and it says nothing of checkpoints: it would begin again"
    assert (f"voda: {warning}" in told.stderr.splitlines()) == is_warned


@pytest.mark.parametrize(("words", "named"), [(["2"], ""), (["--workers", "2"], "--workers: ")])
def test_scale_of_a_plain_program_is_refused_in_the_words_of_the_user(
    words: list[str], named: str, empty: Server
) -> None:
    empty.voda("submit", "--", "python", "plain_fit.py")
    with pytest.raises(InvalidInput, match=rf"^{named}job plain-fit runs a plain program, which has one worker, not 2"):
        empty.voda("scale", "plain-fit", *words)


def test_submit_when_the_name_of_the_script_is_taken_counts_on(empty: Server) -> None:
    told = [empty.voda("submit", "-o", "name", "--", "python", "plain_fit.py").stdout for _ in range(3)]
    assert told == ["plain-fit\n", "plain-fit-2\n", "plain-fit-3\n"]
    with pytest.raises(AlreadyExists):
        empty.voda("submit", "--name", "plain-fit", "--", "python", "plain_fit.py")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.py"], "train.py is a Python program, not a manifest: voda submit -- python train.py"),
        ([], "nothing to submit: give a manifest, or a program after --"),
        (["--"], "no program after --"),
        (["--", "job.yaml"], "job.yaml is a manifest, not a program: voda submit job.yaml"),
        (["job.yaml", "--", "python", "train.py"], "job.yaml stands before --, and a program after it"),
        (["--env", "A=1", "job.yaml"], "--env is for a program after --"),
        (["--env-file", "a.env", "job.yaml"], "--env-file is for a program after --"),
        (["--export", "NO_SUCH", "--", "python", "train.py"], "--export NO_SUCH: there is no such variable here"),
        (["--env-from-file", "A", "--", "python", "train.py"], "--env-from-file: expected NAME=PATH"),
        (["--env-from-file", "A=b", "--image", "x:1", "--", "python", "train.py"], "valueFrom.secretKeyRef"),
        (["--gpus-per-worker", "0", "job.yaml"], "--gpus-per-worker is for a program after --"),
        (["--workers", "", "job.yaml"], "--workers is for a program after --"),
        (["--print", "job.yaml"], "--print is for a program after --"),
        (["--min", "1", "--", "python", "train.py"], "--min and --max are for manifests"),
        (["--workers", "4", "--", "python", "plain_fit.py"], "has one worker, not 4, because it imports no library"),
        (
            ["--workers", "4-1", "--", "python", "train.py"],
            "--workers: expected the smaller number first, got '4-1': 4 is above 1",
        ),
        (
            ["--workers", "", "--", "python", "train.py"],
            "--workers: expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got ''",
        ),
        (
            ["--time", "4x", "--", "python", "train.py"],
            "--time: expected a span with its unit: 30d, 12h, 90m, 30s or 1d12h",
        ),
        (["--time", "90", "--", "python", "train.py"], "--time: expected a span with its unit"),
        (["--time", "0h", "--", "python", "train.py"], "--time: expected a second or more"),
        (["--env", "A", "--", "python", "train.py"], "--env: expected NAME=VALUE"),
        (["--env", "-A=1", "--", "python", "train.py"], "--env: expected NAME=VALUE"),
        (["--env", "A=\0", "--", "python", "train.py"], "NUL"),
        (["--", "python", "train.py", "\0"], "NUL"),
        (["--", "python", "train.py", "\udcff"], "half a character"),
        (["--", "python", "away.py"], "away.py: there is no such file here"),
        (["--workdir", "/away", "--", "python", "train.py"], "/away/train.py: there is no such file here"),
        (["--image", "i", "--workdir", "w", "--", "python", "train.py"], "--workdir: expected a folder of the image"),
        (["--name", "-x\n", "--", "python", "train.py"], "--name: expected 1 to 63 of a-z"),
        (["--launcher", "mpirun", "--", "torchrun", "train.py"], "begins with torchrun and --launcher says mpirun"),
    ],
)
def test_submit_when_it_cannot_be_says_what_to_do(empty: Server, arguments: list[str], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        empty.voda("submit", *arguments)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("torchrun")
def test_program_for_a_voda_elsewhere_is_refused_unless_its_python_is_named(empty: Server, folder: Path) -> None:
    # It leads to this machine, and is no name that only leads there.
    there = ["submit", "--server", empty.service.url.replace("127.0.0.1", "0.0.0.0")]
    told = f"python would be that of the machine of this voda, and not {folder}/python, which is yours here: add --env"
    for words in (["--", "python", "plain_fit.py"], ["--dry-run", "--", "plain_fit.py"]):
        result, refusal = empty.fails(*there, *words)
        assert told in str(refusal)
        assert "runs with" not in result.output
    empty.voda("submit", "--name", "taken", "--", "python", "plain_fit.py")
    with pytest.raises(AlreadyExists):
        empty.voda(*there, "--name", "taken", "--", "python", "plain_fit.py")
    assert (
        "submitted" in empty.voda(*there, "--env", "PATH=/opt/bin:/bin", "--launcher", "plain", "--", "python").stdout
    )
    assert "submitted" in empty.voda(*there, "--", sys.executable, "plain_fit.py").stdout
    assert "submitted" in empty.voda(*there, "--launcher", "plain", "--", "sh", "-c", "true").stdout


def test_submit_to_kubernetes_without_an_image_says_so(folder: Path) -> None:
    versions = {"MPIJob": "kubeflow.org/v2beta1", "Job": "batch/v1"}

    def warnings(parsed: ParsedManifest) -> Sequence[FieldWarning]:
        return kubernetes_warnings(parsed, versions, "nvidia.com/gpu")

    with served(folder, warnings=warnings) as server:
        with pytest.raises(InvalidInput, match="name its image with --image IMAGE"):
            server.voda("submit", "--", "python", "train.py")
        elsewhere = server.service.url.replace("127.0.0.1", "0.0.0.0")
        with pytest.raises(InvalidInput, match="name its image with --image IMAGE"):
            server.voda("submit", "--server", elsewhere, "--", "python", "plain_fit.py")
        told = server.voda("submit", "--image", "train:1", "--workdir", "/w", "--", "python", "there.py")
    assert told.stdout == "there submitted: 1 worker\n"
    assert "as a plain program, because it is not here to be read" in told.stderr


@pytest.mark.usefixtures("torchrun")
def test_init_writes_the_manifest_once(empty: Server, folder: Path) -> None:
    told = empty.voda("init", "train.py", "--workers", "1-4")
    assert told.stdout == "train.yaml written; voda submit train.yaml\n"
    manifest = yaml.safe_load((folder / "train.yaml").read_text())
    assert manifest["spec"]["elasticPolicy"] == {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    with pytest.raises(InvalidInput, match=r"train.yaml is there already: --force replaces it"):
        empty.voda("init", "train.py")
    empty.voda("init", "--force", "--", "python", "train.py", "--lr", "1e5")
    assert '[torchrun, train.py, "--lr", "1e5"]' in (folder / "train.yaml").read_text()
    assert "train submitted" in empty.voda("submit", "train.yaml").stdout
    with pytest.raises(InvalidInput, match=r"no program: voda init train.py"):
        empty.voda("init")


def test_manifest_in_a_file_begins_where_it_was_made_wherever_it_is_submitted(
    empty: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty.voda("init", "train.py")
    (folder / "printed.yaml").write_text(empty.voda("submit", "--print", "--", "train.py").stdout)
    (folder / "image.yaml").write_text(empty.voda("submit", "--print", "--image", "i:1", "--", "train.py").stdout)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    for file in ("train.yaml", "printed.yaml"):
        manifest = yaml.safe_load((folder / file).read_text())
        assert manifest["metadata"]["annotations"]["voda.dev/working-dir"] == str(folder), file
    empty.voda("submit", str(folder / "train.yaml"))
    answer = empty.does(empty.service.ask("GET", "/api/v1/jobs/train/manifest")).json()
    assert answer["metadata"]["annotations"]["voda.dev/working-dir"] == str(folder)
    assert "working-dir" not in (folder / "image.yaml").read_text()


def test_program_goes_past_names_that_are_ids_of_runs(empty: Server) -> None:
    for _ in range(2):
        empty.voda("submit", "--", "python", "plain_fit.py")
        empty.happens(JobCompleted(job_id="plain-fit"))
    told = empty.voda("submit", "-o", "name", "--", "python", "plain_fit.py").stdout
    assert told == "plain-fit-3\n"
    assert empty.voda("get", "-a", "-o", "name").stdout.split() == ["plain-fit-2", "plain-fit-3", "plain-fit"]


def test_submit_passes_variables_on_and_names_the_files_of_secrets(
    empty: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", "/data/hf")
    (folder / "a.env").write_text("A=1\nB=2\n")
    (folder / "key.txt").touch(mode=0o600)
    options = ["--export", "HF_HOME", "--env-file", "a.env", "--env", "B=3", "--env-from-file", "KEY=key.txt"]
    printed = empty.voda("submit", "--print", *options, "--", "python", "train.py")
    manifest = yaml.safe_load(printed.stdout)
    assert manifest["metadata"]["annotations"]["voda.dev/env-from-file.KEY"] == str(folder / "key.txt")
    [container] = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert given.pop("PATH").endswith(":$(PATH)")
    assert {"HF_HOME": "/data/hf", "A": "1", "B": "3"}.items() <= given.items()
    done = empty.voda("submit", *options, "--", "python", "train.py")
    assert "submitted" in done.stdout
    assert "KEY" not in done.stderr  # no warning


@pytest.mark.usefixtures("torchrun")
def test_submit_says_how_the_program_is_started_only_where_voda_guessed(empty: Server, folder: Path) -> None:
    for words in (["python", "plain_fit.py"], ["torchrun", "train.py"]):
        assert empty.voda("submit", "--", *words).stderr == f"voda: runs with {folder}/{words[0]}\n"
        assert "--launcher chooses another" in empty.voda("submit", "--print", "--", *words).stderr
    assert "runs train.py with torchrun" in empty.voda("submit", "--", "python", "train.py").stderr
    assert empty.voda("get", "-o", "name").stdout.split() == ["plain-fit", "train", "train-2"]


def test_print_with_an_image_is_ready_for_kubectl_and_can_be_submitted(empty: Server, folder: Path) -> None:
    options = ("--image", "train:1", "--workers", "1-4", "-l", "team=vision", "-n", "vision")
    printed = empty.voda("submit", "--print", *options, "--", "torchrun", "train.py").stdout
    assert printed.startswith(
        "# For `kubectl apply -f FILE` or `voda submit FILE`. voda starts it, and makes its Service"
    )
    manifest = yaml.safe_load(printed)
    assert manifest["metadata"]["namespace"] == "vision"
    assert manifest["metadata"]["labels"] == {"voda.dev/managed": "true", "team": "vision"}
    assert (manifest["spec"]["suspend"], manifest["spec"]["template"]["spec"]["subdomain"]) == (True, "train")
    (folder / "job.yaml").write_text(printed)
    assert empty.voda("submit", "job.yaml", "-o", "name").stdout == "vision_train\n"
    empty.voda("init", "--image", "train:1", "--workers", "1-4", "--out", "init.yaml", "--", "torchrun", "train.py")
    assert yaml.safe_load((folder / "init.yaml").read_text())["spec"] == {
        **manifest["spec"],
        "template": yaml.safe_load(printed.replace("train.vision.svc", "train.default.svc"))["spec"]["template"],
    }


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_print_with_a_device_class_has_the_claims_that_would_be_made_and_no_other_gpus(
    empty: Server, launcher: str
) -> None:
    options = ("--image", "train:1", "--workers", "1-4", "--gpus-per-worker", "2", "--device-class", "gpu.example.com")
    printed = empty.voda("submit", "--print", *options, "--launcher", launcher, "--", "python", "train.py").stdout
    assert printed.startswith("# For `kubectl apply -f FILE` alone")
    template, job = yaml.safe_load_all(printed)
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    ]
    assert not {"voda.dev/device-class", "voda.dev/gpus-claimed"} & job["metadata"]["annotations"].keys()
    replicas = job["spec"].get("mpiReplicaSpecs", {}).get("Worker", job["spec"])
    pod = replicas["template"]["spec"]
    assert [each["resourceClaimTemplateName"] for each in pod["resourceClaims"]] == [template["metadata"]["name"]]
    assert pod["containers"][0]["resources"] == {"limits": {}, "claims": [{"name": pod["resourceClaims"][0]["name"]}]}
    assert "nvidia.com/gpu" not in printed


def test_print_of_what_only_voda_submit_can_do_says_so(empty: Server) -> None:
    words = ("submit", "--print", "--image", "train:1", "--array", "0-3", "--", "torchrun", "train.py")
    printed = empty.voda(*words).stdout
    assert printed.startswith("# For `voda submit FILE` alone")
    assert "suspend" not in printed
    words = ("submit", "--print", "--image", "train:1", "--after", "prep", "--", "torchrun", "train.py")
    assert yaml.safe_load(empty.voda(*words).stdout)["spec"]["suspend"] is True


def test_code_that_is_kept_when_it_is_a_lot_loses_the_oldest_but_what_live_jobs_run(
    empty: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_code.has_too_many, "__defaults__", (1,))
    monkeypatch.setattr(kept_code.clear, "__kwdefaults__", {"most": 1})
    store = empty.home / "code"
    kept = []
    for number in range(4):
        (folder / "plain_fit.py").write_text(f"print({number})\n")
        empty.voda("submit", "--name", f"j{number}", "--", "python", "plain_fit.py")
        kept += [one for one in store.iterdir() if one not in kept]
        os.utime(kept[-1], (number, number))
        if number == 1:
            empty.happens(JobCompleted(job_id="j1"))
    assert [one.exists() for one in kept] == [True, False, True, True]
