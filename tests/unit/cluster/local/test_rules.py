"""The pure rules of the local cluster: devices, host lists, torch's variables, and what an end means."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.local_jobs import a_torch_job, an_mpi_job
from tests.manifests import a_torch_job as a_torch_manifest
from tests.manifests import an_indexed_job
from voda.cluster.local import rendezvous
from voda.cluster.local.devices import Device, Slots, cpu_slots
from voda.cluster.local.exit_policy import ExitDecision, decide_exit, pause_s, put_off_restart
from voda.cluster.local.folder import JobFolder, LocalJobRecord
from voda.cluster.local.processes.replica_folder import Exit
from voda.cluster.local.run_spec import RunSpec, run_spec_of
from voda.domain.errors import ActionRefused
from voda.domain.gpus import Gpus
from voda.domain.job import MOST_REPLICAS, JobSpec
from voda.kinds.pod_template import RdzvConf, TorchElasticPolicy
from voda.manifests.programs import ReplicaProgram, expand_program

ROOT = Path(__file__).parents[4]

GPUS = tuple(Device(name=str(index)) for index in range(8))
_FAILED = Exit(run=1, code=3)
_DONE = Exit(run=1)


def test_devices_when_several_are_needed_per_worker_are_neighbours() -> None:
    slots = Slots(GPUS)
    taken = slots.take("a", [0, 1], Gpus(2), barred=["1"], node="n1")
    assert taken == {0: ("0", "2"), 1: ("3", "4")}
    assert slots.held() == {"0", "2", "3", "4"}


def test_devices_when_too_few_are_free_are_all_left() -> None:
    slots = Slots(GPUS)
    slots.take("a", range(3), Gpus(2), barred=(), node="n1")
    with pytest.raises(ActionRefused, match="job b: needs 4 more GPUs on node n1, 2 free"):
        slots.take("b", [0, 1], Gpus(2), barred=(), node="n1")
    assert len(slots.held()) == 6


def test_devices_when_released_are_taken_again() -> None:
    slots = Slots(cpu_slots(2))
    taken = slots.take("a", [0, 1], Gpus(1), barred=(), node="n1")
    slots.release("a", 0, taken[0])
    assert slots.take("b", [0], Gpus(1), barred=(), node="n1") == {0: taken[0]}
    assert slots.visible(taken[0]) == ()


def test_hosts_when_v2beta1_are_full_names_sorted_as_the_operator_sorts_pods() -> None:
    job = an_mpi_job("digits", "", processes=2, max_replicas=16)
    hostfile, discovery = rendezvous.host_files(job, range(11), "remote")
    assert hostfile.splitlines()[1] == "digits-worker-1.digits.default.svc slots=2"
    shown = discovery.splitlines()
    assert shown[0] == "#!/bin/sh"
    assert shown[2:4] == [f"echo digits-worker-{index}.digits.default.svc" for index in (1, 10)]


def test_hosts_when_v1_are_pods_with_slots() -> None:
    job = an_mpi_job("digits", "", is_mpi_v2=False, processes=2)
    assert rendezvous.host_files(job, [0], "remote") == (
        "digits-worker-0 slots=2\n",
        "#!/bin/sh\necho digits-worker-0:2\n",
    )


def test_hosts_when_there_are_no_hostnames_are_one_line_of_this_machine() -> None:
    job = an_mpi_job("digits", "", processes=2)
    assert rendezvous.host_files(job, [0, 2], "rank") == ("localhost slots=4\n", "#!/bin/sh\necho localhost:4\n")
    assert rendezvous.host_files(job, [], "rank") == ("", "#!/bin/sh\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/mpi/discover_hosts.sh", "/j/mpi/discover_hosts.sh"),
        ("--hostfile=/etc/mpi/hostfile", "--hostfile=/j/mpi/hostfile"),
        ("ls /etc/mpi; ls /etc/mpi", "ls /j/mpi; ls /j/mpi"),
        ("/etc/mpirun.conf", "/etc/mpirun.conf"),
    ],
)
def test_mount_path_when_in_a_word_leads_to_the_jobs_folder(text: str, expected: str) -> None:
    assert rendezvous.mounted(text, Path("/j/mpi")) == expected


def test_hostname_when_the_name_is_long_stays_within_the_kernels_limit() -> None:
    assert rendezvous.hostname("a" * 128, 12).endswith("a-worker-12")
    assert len(rendezvous.hostname("a" * 128, 12)) == 63


def test_torch_when_several_meet_are_one_size_with_ranks_in_the_order_of_workers() -> None:
    job = a_torch_job("t", "", grace_s=60, elastic=TorchElasticPolicy(min_replicas=1, max_replicas=4))
    first, second = (_environment(job, index, workers=[0, 2]) for index in (0, 2))
    same = ("PET_RDZV_ENDPOINT", "PET_NNODES", "PET_MAX_RESTARTS", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    for env in (first, second):
        assert [env[name] for name in same] == ["127.0.0.1:4711", "2", "0", "60"]
    assert (first["PET_NODE_RANK"], second["PET_NODE_RANK"]) == ("0", "1")
    assert ("is_host=1" in first["PET_RDZV_CONF"], "is_host=0" in second["PET_RDZV_CONF"]) == (True, True)


def test_torch_addresses_sort_as_texts_in_the_order_of_workers() -> None:
    workers = range(MOST_REPLICAS)
    job = a_torch_job("t", "")
    found = [_environment(job, index, workers=workers)["PET_LOCAL_ADDR"] for index in (0, 9, 10, 99, 100, 999, 4095)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({"elastic": TorchElasticPolicy(rdzv_backend="c10d", max_restarts=100)}, "static"),
        ({"argv": ("torchrun", "--max-restarts=3", "train.py")}, "c10d"),
        ({"elastic": TorchElasticPolicy(rdzv_backend="etcd-v2")}, "etcd-v2"),
    ],
)
def test_torch_restarts_nothing_by_itself_unless_its_user_says_so(fields: dict[str, Any], backend: str) -> None:
    env = _environment(a_torch_job("t", "", **fields), 0)
    assert (env["PET_RDZV_BACKEND"], env["PET_MAX_RESTARTS"]) == (backend, "0")


def test_torch_when_the_manifest_says_how_long_to_wait_is_obeyed() -> None:
    elastic = TorchElasticPolicy(min_replicas=1, max_replicas=4, rdzv_conf=(RdzvConf("last_call_timeout", "60"),))
    env = _environment(a_torch_job("t", "", elastic=elastic), 0)
    assert "last_call_timeout=60" in env["PET_RDZV_CONF"].split(",")


@pytest.mark.parametrize(
    ("argv", "is_gang"),
    [
        (("torchrun", "train.py"), True),
        (("sh", "-c", "cd /data && exec torchrun --nnodes=1:4 train.py"), True),
        (("python", "-m", "torch.distributed.run", "train.py"), True),
        (("accelerate", "launch", "train.py"), True),
        (("python", "work.py"), False),
        (("python", "train_accelerated.py"), False),
        (("sh", "-c", "pip install accelerate torchrun-helper && python work.py"), False),
        (("./run.sh", "torchrun"), False),
    ],
)
def test_agents_that_meet_are_known_by_what_starts_them(argv: tuple[str, ...], is_gang: bool) -> None:
    assert a_torch_job("t", "", argv=argv).is_gang == is_gang
    assert a_torch_job("t", "", argv=argv, elastic=TorchElasticPolicy()).is_gang


def test_torch_when_there_is_a_master_tells_ranks() -> None:
    job = _with_master()
    env = _environment(job, 1, workers=range(3))
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "4711")
    assert (env["WORLD_SIZE"], env["RANK"]) == ("3", "1")
    assert [job.replica_of(index) for index in range(3)] == ["master-0", "worker-0", "worker-1"]


@pytest.mark.parametrize(("processes", "expected"), [(None, "2"), (4, "4")])
def test_torch_when_asked_for_auto_starts_one_process_per_gpu_of_the_replica(
    processes: int | None, expected: str
) -> None:
    job = a_torch_job("t", "", processes=processes, gpus_per_replica=2)
    assert _environment(job, 0)["PET_NPROC_PER_NODE"] == expected


def test_torch_variables_are_all_in_the_docs() -> None:
    documented = (ROOT / "docs" / "up.md").read_text("utf-8")
    with_master, indexed = _with_master(), run_spec_of(JobSpec(job_id="t", kind="Job", manifest=an_indexed_job()))
    jobs = (a_torch_job("t", "", elastic=TorchElasticPolicy(min_replicas=1)), with_master, indexed)
    names = {name for job in jobs for name in _environment(job, 0)}
    assert {"PET_NNODES", "PET_NODE_RANK", "JOB_COMPLETION_INDEX"} < names
    assert {name for name in names if f"`{name}`" not in documented} == set()


def test_torch_variable_of_the_user_goes_before_vodas_where_it_was_written_for_this_machine() -> None:
    own = {"PET_MAX_RESTARTS": "3", "PET_NPROC_PER_NODE": "2"}
    manifests = {
        "PyTorchJob": a_torch_manifest(env=own),
        "Job": an_indexed_job(env=[{"name": name, "value": value} for name, value in own.items()]),
    }
    seen = {}
    for kind, manifest in manifests.items():
        job = run_spec_of(JobSpec(job_id="t", kind=kind, manifest=manifest))
        base = _environment(job, 0)
        _, env = expand_program(job.programs["worker"], base)
        seen[kind] = (env["PET_MAX_RESTARTS"], env["PET_NPROC_PER_NODE"])
    # Those of a Job are about the pods of a cluster, but for the processes of each.
    assert seen == {"PyTorchJob": ("3", "2"), "Job": ("0", "2")}


def test_end_when_the_launcher_succeeds_completes_the_job() -> None:
    assert _decided(an_mpi_job("a", ""), "launcher", _DONE).outcome == "completed"


def test_end_when_one_of_several_agents_succeeds_completes_only_an_elastic_job() -> None:
    elastic = a_torch_job("a", "", elastic=TorchElasticPolicy(min_replicas=1, max_replicas=4))
    rigid = a_torch_job("a", "", min_replicas=4)
    assert _decided(elastic, "worker-1", _DONE).outcome == "completed"
    assert _decided(rigid, "worker-1", _DONE) == ExitDecision(outcome="done", worker=1)
    assert _decided(rigid, "worker-1", _DONE, done={0}).outcome == "completed"


def test_end_when_a_worker_is_still_to_come_waits_for_it() -> None:
    assert _decided(a_torch_job("a", ""), "worker-1", _DONE, done={0}, size=3).outcome == "done"


def test_end_when_a_master_is_there_is_decided_by_it() -> None:
    assert _decided(_with_master(), "worker-0", _DONE) == ExitDecision(outcome="done", worker=1)
    assert _decided(_with_master(), "worker-0", _DONE, done={0}).outcome == "done"
    assert _decided(_with_master(), "master-0", _DONE).outcome == "completed"


def test_end_of_one_agent_that_meets_others_is_that_of_all() -> None:
    job = a_torch_job("a", "", argv=("torchrun", "train.py"))
    told, one = Exit(run=1, was_told=True), {"generation": (0, 1)}
    assert _decided(job, "worker-1", _FAILED, **one) == ExitDecision(outcome="restart")
    assert _decided(job, "worker-1", told, **one) == ExitDecision(outcome="evicted")
    # A resize, or a failure of another: what voda ends itself is nobody's failure.
    for generation in ((0,), (0, 1, 2), ()):
        for ended in (_FAILED, told):
            assert _decided(job, "worker-1", ended, generation=generation).outcome == "ignored"
        assert _decided(job, "worker-1", _DONE, generation=generation).outcome == "done"


def test_end_when_the_job_or_the_worker_ends_anyway_is_ignored() -> None:
    job = a_torch_job("a", "")
    for fields in ({"ended": "completed"}, {"state": "halting"}, {"leaving": {1}}, {"devices": {0: ("0",)}}):
        assert _decided(job, "worker-1", _FAILED, **fields).outcome == "ignored"


def test_end_when_others_told_the_program_is_an_eviction_even_if_it_ended_well() -> None:
    told = Exit(run=1, was_told=True)
    assert _decided(a_torch_job("a", ""), "worker-1", told) == ExitDecision(outcome="evicted", worker=1)
    assert _decided(an_mpi_job("a", ""), "launcher", told) == ExitDecision(outcome="evicted")


@pytest.mark.parametrize(("until", "outcome"), [(99.0, "failed"), (105.0, "ignored"), (111.0, "failed")])
def test_end_when_a_worker_was_killed_under_the_launcher_is_ignored_for_ten_seconds(until: float, outcome: str) -> None:
    job = an_mpi_job("a", "", policy={"backoff_limit": 0})
    assert _decided(job, "launcher", _FAILED, forgiven_until=until).outcome == outcome


@pytest.mark.parametrize(
    ("policy", "ended", "failures", "outcome"),
    [
        ("OnFailure", _FAILED, 0, "restart"),
        ("OnFailure", _FAILED, 6, "failed"),
        ("Never", _FAILED, 0, "failed"),
        ("ExitCode", _FAILED, 0, "failed"),
        ("ExitCode", Exit(run=1, code=-1, signal=9), 0, "restart"),
        ("OnFailure", Exit(run=1, code=127, problem="command x: not found"), 0, "failed"),
        ("OnFailure", Exit(run=1, code=127), 0, "failed"),
        ("OnFailure", Exit(run=1, code=126), 0, "failed"),
        ("OnFailure", Exit(run=1, code=125), 0, "restart"),
    ],
)
def test_end_when_a_replica_fails_is_judged_by_its_restart_policy(
    policy: str, ended: Exit, failures: int, outcome: str
) -> None:
    job = a_torch_job("a", "", policy={"restart_policy": {"worker": policy}})
    assert _decided(job, "worker-0", ended, failures=failures).outcome == outcome


def test_end_when_the_launcher_must_never_restart_is_the_jobs_end() -> None:
    job = an_mpi_job("a", "", policy={"restart_policy": {"launcher": "Never"}})
    assert _decided(job, "launcher", _FAILED).outcome == "failed"


def test_pause_when_failures_go_on_doubles_up_to_five_minutes() -> None:
    assert [pause_s(failures) for failures in (1, 2, 3, 9, 10, 1000)] == [1, 2, 4, 256, 300, 300]


def test_failures_when_replicas_fail_together_count_once() -> None:
    record = LocalJobRecord(job_id="a", pool="default")
    put_off_restart(record, 100.0, is_failure=True)
    put_off_restart(record, 100.5, is_failure=True)
    assert (record.failures, record.not_before) == (1, 101.0)
    put_off_restart(record, 101.0, is_failure=True)
    assert record.failures == 2


def test_record_when_written_has_the_names_that_older_and_newer_vodas_read() -> None:
    old = {
        "job_id": "a", "pool": "default", "state": "running", "kind": "torch", "grace_s": 5.0, "gpus_per_replica": 2,
        "size": 2, "devices": {"0": ["0", "1"]}, "leaving": [0], "runs": {"worker-0": 2}, "judged": {"worker-0": 1},
        "done": [0], "port": 4711, "failures": 1, "cuts": 2, "not_before": 1.0, "forgiven_until": 2.0,
        "resumed_at": 3.0, "ended": "failed", "reason": {"kind": "said", "text": "r"}, "succeeded_at": 4.0,
        "boot_id": "b",
    }  # fmt: skip
    record = msgspec.json.decode(json.dumps(old), type=LocalJobRecord)
    assert record.evictions == 2
    assert json.loads(msgspec.json.encode(record)) == old


@pytest.mark.parametrize("job_id", ["..", "a/b", "", "-a", "A", "a" * 129, "a\n"])
def test_folder_when_the_id_is_no_name_is_refused(job_id: str) -> None:
    with pytest.raises(ActionRefused, match="cannot be the name of a folder"):
        JobFolder(Path("/jobs"), job_id)


def test_run_spec_when_read_from_a_manifest_has_its_programs() -> None:
    container = {"name": "l", "command": ["mpirun"], "args": ["-np", "$(NP)", "train"]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 7}}
    manifest = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "a"},
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template},
                "Worker": {"replicas": 2, "template": template},
            },
        },
    }
    job = run_spec_of(JobSpec(job_id="a", manifest=manifest))
    assert (job.kind, job.is_mpi_v2, job.slots_per_worker, job.grace_s) == ("mpi", True, 2, 7.0)
    assert job.programs["launcher"].argv == ("mpirun", "-np", "$(NP)", "train")
    assert job.policy.backoff_limit == 6


def test_run_spec_when_there_is_no_manifest_or_command_is_refused() -> None:
    with pytest.raises(ActionRefused, match="without a manifest"):
        run_spec_of(JobSpec(job_id="a"))


def _with_master() -> RunSpec:
    job = a_torch_job("t", "", min_replicas=3)
    return replace(job, programs={**job.programs, "master": ReplicaProgram(role="master", argv=("true",))})


def _environment(job: RunSpec, index: int, workers: Sequence[int] = (0,)) -> dict[str, str]:
    return rendezvous.agent_environment(job, index, workers=workers, port=4711)


def _decided(job: RunSpec, replica: str, end: Exit, **fields: Any) -> ExitDecision:
    """Decide about an end at instant 100 in a running job of two workers, unless the record says otherwise."""
    running = {"state": "running", "size": 2, "devices": {0: ("0",), 1: ("1",)}, **fields}
    return decide_exit(job, LocalJobRecord(job_id="a", pool="default", **running), replica, end, now=100.0)


def test_failure_right_after_a_resize_is_no_failure_of_the_program_where_another_size_ran() -> None:
    job = an_mpi_job("a", "", policy={"backoff_limit": 0})
    resized: dict[str, Any] = {"size": 4, "ran_size": 2, "sized_at": 90.0}
    assert _decided(job, "launcher", _FAILED, **resized).outcome == "restart"
    assert _decided(job, "launcher", Exit(run=1, code=127), **resized).outcome == "failed"
    assert _decided(job, "launcher", _FAILED, **{**resized, "sized_at": 10.0}).outcome == "failed"
    assert _decided(job, "launcher", _FAILED, **{**resized, "ran_size": 4}).outcome == "failed"
    record = LocalJobRecord(job_id="a", pool="default", **resized)
    put_off_restart(record, 100.0, is_failure=True)
    assert (record.failures, record.not_before) == (0, 101.0)


def test_size_counts_as_run_once_it_has_lasted_for_more_than_a_moment() -> None:
    record = LocalJobRecord(job_id="a", pool="default")
    seen = []
    for size, now in ((2, 100.0), (4, 130.0), (2, 150.0), (4, 250.0), (4, 260.0)):
        record.resize(size, now)
        seen.append((record.ran_size, record.has_new_size(now + 1)))
    assert seen == [(0, False), (0, False), (0, False), (2, True), (2, True)]
