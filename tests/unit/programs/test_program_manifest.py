"""The manifest of a program: what it is made of is what the parser and the machine read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.kinds.registry import KINDS
from voda.manifests import text
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import local_warnings, refuse_unrunnable
from voda.manifests.parse import parse
from voda.manifests.programs import expand_program, failure_policy, program
from voda.manifests.yaml_writer import manifest_yaml
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest

_SIGNS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
_ODD = st.sampled_from(
    ["", "--", "-x", "$(HOME)", "$$", "$(", "a\nb", "no", "1e5", "0o17", "~", "<<", "é😀", "'\"", "\x85"]
)
_WORDS = st.text(_SIGNS, max_size=12) | _ODD
_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("NP", "MIN_NP", "MAX_NP", "EPOCHS", "JOB_NAME")
)
_SIZES = st.tuples(st.integers(1, 4096), st.integers(1, 4096)).map(sorted)
_LAUNCHERS: list[Launcher] = ["mpirun", "torchrun", "plain"]


@st.composite
def jobs(draw: st.DrawFn) -> ProgramJob:
    launcher = draw(st.sampled_from(_LAUNCHERS))
    least, most = (1, 1) if launcher == "plain" else draw(_SIZES)
    return ProgramJob(
        name="train",
        words=("prog", *draw(st.lists(_WORDS, max_size=5))),
        launcher=launcher,
        least=least,
        most=most,
        gpus_per_worker=draw(st.integers(0, 1024)),
        env=tuple(draw(st.lists(st.tuples(_NAMES, _WORDS), max_size=3, unique_by=lambda pair: pair[0]))),
        time_limit_s=draw(st.integers(0, 10**6)),
        image=draw(st.sampled_from(["", "train:1"])),
    )


def a_job(*words: str, launcher: Launcher = "torchrun", **fields: Any) -> ProgramJob:
    return ProgramJob(name="train", words=words or ("python", "train.py"), launcher=launcher, **fields)


def words_of(job: ProgramJob) -> tuple[str, ...]:
    """Return the command line as the machine starts it."""
    parsed = parse(program_manifest(job))
    runs = program(parsed.job, parsed.job.local_roles[0].lower()) or program(parsed.job, "worker")
    assert runs is not None
    return expand_program(runs, {})[0]


@given(jobs())
def test_manifest_when_written_as_yaml_reads_back_the_same(job: ProgramJob) -> None:
    manifest = program_manifest(job)
    assert text.read(manifest_yaml(manifest).encode()) == manifest


@given(jobs())
def test_manifest_when_parsed_has_the_numbers_that_it_was_made_of(job: ProgramJob) -> None:
    parsed = parse(program_manifest(job))
    spec = parsed.spec
    assert (spec.min_replicas, spec.max_replicas, spec.requested_replicas) == (job.least, job.most, job.least)
    assert spec.gpus_per_replica == job.gpus_per_worker
    assert failure_policy(parsed.job).active_deadline_s == (job.time_limit_s or None)
    assert not parsed.warnings


@given(jobs())
def test_program_when_expanded_gets_the_words_and_values_that_the_user_wrote(job: ProgramJob) -> None:
    parsed = parse(program_manifest(job))
    refuse_unrunnable(parsed)
    runs = program(parsed.job, "launcher" if job.launcher == "mpirun" else "worker")
    assert runs is not None
    argv, env = expand_program(runs, {"HOME": "/root"})
    assert argv[-len(job.words) :] == job.words
    assert {name: env[name] for name, _ in job.env} == dict(job.env)


@given(jobs())
def test_manifest_when_checked_is_accepted_by_its_cluster_without_a_warning_of_a_field(job: ProgramJob) -> None:
    parsed = parse(program_manifest(job))
    if job.image:
        told = kubernetes_warnings(parsed, {kind.name: kind.versions[0] for kind in KINDS.values()}, "nvidia.com/gpu")
        assert [each.field for each in told if "lasticPolicy" in each.field or "command" in each.field] == []
    else:
        assert list(local_warnings(parsed)) == []


def test_program_when_elastic_is_kept_by_voda_run_or_torchrun() -> None:
    assert words_of(a_job(launcher="mpirun", least=1, most=4, gpus_per_worker=2))[:6] == (
        *("voda", "run", "--min-np", "2", "--max-np", "8"),
    )
    assert words_of(a_job(least=1, most=4)) == ("torchrun", "train.py")
    module = ("/opt/bin/python", "-m", "torch.distributed.run")
    assert words_of(a_job("/opt/bin/python", "train.py")) == (*module, "train.py")


def test_program_when_its_command_begins_with_a_launcher_stays_as_it_is() -> None:
    assert words_of(a_job("mpirun", "-np", "2", "a", launcher="mpirun", least=2, most=2)) == ("mpirun", "-np", "2", "a")
    assert words_of(a_job("torchrun", "--standalone", "a.py")) == ("torchrun", "--standalone", "a.py")


def test_mpi_program_of_one_size_when_in_an_image_needs_no_voda_and_carries_its_variables() -> None:
    job = a_job(launcher="mpirun", least=2, most=2, image="train:1", env=(("LR", "$(X)"),))
    assert words_of(job) == ("mpirun", "env", "LR=$(X)", "python", "train.py")


@given(jobs())
def test_containers_of_an_image_leave_the_end_of_their_logs_in_their_pods(job: ProgramJob) -> None:
    found = str(program_manifest(job)).count("'terminationMessagePolicy': 'FallbackToLogsOnError'")
    assert found == (0 if not job.image else 2 if job.launcher == "mpirun" else 1)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (a_job(launcher="plain", most=4), "a plain program has one worker, not 4"),
        (a_job("mpirun", "a", launcher="torchrun"), "the command begins with mpirun and --launcher says torchrun"),
        (a_job("mpirun", "a", launcher="mpirun", most=4), "mpirun cannot change its size: give --workers 4"),
        (a_job("accelerate", "launch", "a.py", most=3, image="train:1"), "each of 3 workers would train alone"),
    ],
)
def test_program_that_cannot_run_is_refused_with_a_sentence(job: ProgramJob, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        program_manifest(job)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("a.py",), {"gpus_per_worker": 2}),
        (("--multi-gpu", "--num-processes=2", "a.py"), {}),
        (("--use_fsdp", "a.py"), {}),
        (("a.py",), {"most": 1}),
    ],
)
def test_accelerate_on_kubernetes_has_several_workers_where_it_starts_agents(
    words: tuple[str, ...], fields: dict[str, Any]
) -> None:
    job = a_job("accelerate", "launch", *words, image="train:1", **{"most": 3, **fields})
    assert program_manifest(job)["kind"] == "Job"
