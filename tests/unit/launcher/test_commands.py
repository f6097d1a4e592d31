"""The command lines and environments that start a program."""

from pathlib import Path

import pytest

from voda.launcher.commands import hostfile_text, mpirun, torchrun
from voda.launcher.hosts import Layout

FOLDER = Path("/run/x/3")
TWO = Layout(slots={"a": 1, "b": 2})


def test_mpirun_when_the_operator_names_a_hostfile_uses_its_own() -> None:
    theirs = {"PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hf"}
    command = mpirun(["python", "train.py"], TWO, theirs, folder=FOLDER)
    assert command.argv[:5] == ["mpirun", "--hostfile", "/run/x/3/hostfile", "-np", "3"]
    assert {command.env[name] for name in theirs} == {"/run/x/3/hostfile"}
    assert hostfile_text(TWO) == "a slots=1\nb slots=2\n"


@pytest.mark.parametrize(
    ("alone", "for_all"),
    [
        ("PRTE_MCA_prte_local_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"),
        ("OMPI_MCA_orte_local_tmpdir_base", "OMPI_MCA_orte_tmpdir_base"),
    ],
)
def test_mpirun_when_a_folder_is_set_for_its_daemons_too_sets_that_one_alone(alone: str, for_all: str) -> None:
    plain = mpirun(["x"], TWO, {}, folder=FOLDER).env
    assert (plain.get(alone), plain.get(for_all)) == (str(FOLDER), None)
    given = mpirun(["x"], TWO, {for_all: "/jobs/a/.openmpi"}, folder=FOLDER).env
    assert (given.get(alone), given.get(for_all)) == (None, str(FOLDER))


def test_mpirun_when_run_in_a_job_forwards_what_reports_need_and_no_worker_variables() -> None:
    env = {"VODA_JOB_ID": "a", "VODA_JOB_TOKEN": "secret", "VODA_REPLICA": "/x", "PATH": "/bin"}
    argv = list(mpirun(["train"], TWO, env, folder=FOLDER).argv)
    forwarded = {argv[at + 1] for at, word in enumerate(argv) if word == "-x"}
    assert forwarded == {"PATH", "VODA_JOB_ID", "VODA_JOB_TOKEN", "VODA_RUN_DIR", "PYTHONUNBUFFERED"}
    assert "secret" not in " ".join(argv)


def test_devices_when_known_are_what_the_program_sees() -> None:
    layout = Layout(slots={"localhost": 2}, devices="0,3")
    assert mpirun(["x"], layout, {"CUDA_VISIBLE_DEVICES": ""}, folder=FOLDER).env["CUDA_VISIBLE_DEVICES"] == "0,3"


def test_torchrun_when_given_a_python_script_runs_it_itself() -> None:
    layout = Layout(slots={"localhost": 2})
    argv = torchrun(["python", "train.py", "--x"], layout, {}, folder=FOLDER, grace_s=30.0).argv
    assert list(argv[-2:]) == ["train.py", "--x"]
    assert "--nproc_per_node=2" in argv
    assert "--no_python" not in argv


def test_torchrun_when_given_another_program_leaves_it_whole() -> None:
    command = torchrun(["python", "-u", "train.py"], Layout(slots={"localhost": 1}), {}, folder=FOLDER, grace_s=60.0)
    assert list(command.argv[-4:]) == ["--no_python", "python", "-u", "train.py"]
    # As long as it has by voda, not torchrun's own 30 s.
    assert command.env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "60"


def test_torchrun_of_a_python_that_is_named_by_its_path_is_its_own() -> None:
    argv = torchrun(
        ["/opt/bin/python", "train.py"], Layout(slots={"localhost": 1}), {}, folder=FOLDER, grace_s=30.0
    ).argv
    assert list(argv[:4]) == ["/opt/bin/python", "-m", "torch.distributed.run", "--standalone"]
    assert argv[-1] == "train.py"
