"""Commands in pods, through the real API server to a kubelet of the tests' own; or, where VODA_TEST_KUBELETS names the
kubeconfig of a cluster with real kubelets, to one of those.
"""

import os
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.builders import a_job, a_spec
from tests.contract.remote_command_claims import JOB, CommandBench, RemoteCommandClaims, printed, until_printed
from tests.kube.assets import IS_OLD
from tests.kube.control_plane import OUTSIDER, ControlPlane
from tests.kube.objects import a_pytorchjob
from tests.kube.pod_commands import POD, REAL, PodBench, a_pod_bench, a_real_pod_bench
from tests.needs import needs
from tests.waiting import until_it_is
from voda.cluster.kubernetes.exec.commands import KubernetesCommands, container_of, is_replica
from voda.cluster.kubernetes.exec.session import end_of
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.well_known import JOB_NAME, OPERATOR_JOB_NAME
from voda.cluster.port import CommandEnd, CommandRequest, TerminalSize
from voda.domain.errors import ClusterUnavailable, InvalidInput, NotAllowed, WrongState
from voda.kubernetes_client.api import Api

TRUE = CommandRequest(argv=("true",))
with_web_sockets = pytest.mark.skipif(
    IS_OLD and not REAL, reason="kube-apiserver 1.35 has no ExtendWebSocketsToKubelet, and the tests' kubelet no SPDY"
)
with_the_tests_own = needs(not REAL, "a real kubelet was named")


@pytest.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[PodBench]:
    if REAL:
        async with a_real_pod_bench() as made:
            yield made
    else:
        async with a_pod_bench(request.getfixturevalue("control_plane")) as made:
            yield made


@with_web_sockets
class TestKubernetesCommands(RemoteCommandClaims):
    """The claims, of Kubernetes'."""

    @pytest.fixture
    async def bench(self, bench: PodBench) -> CommandBench:
        return bench


@with_web_sockets
async def test_command_that_no_kernel_runs_is_told_so_with_126(bench: PodBench) -> None:
    async with bench.commands.run(JOB, POD, CommandRequest(argv=("/etc/passwd",))) as command:
        assert await printed(command) == (b"", b"", CommandEnd(126, "command /etc/passwd: cannot be run"))


@with_web_sockets
async def test_terminal_passes_on_what_interrupts_a_command_and_what_ends_its_input(bench: PodBench) -> None:
    size = TerminalSize(columns=80, rows=24)
    for script, said, status in (("echo began; sleep 1000", b"\x03", 130), ("echo began; cat", b"", 0)):
        asked = CommandRequest(argv=("sh", "-c", script), has_input=True, terminal=size)
        async with bench.commands.run(JOB, POD, asked) as command:
            assert not isinstance(await command.read(), CommandEnd)
            await (command.write(said) if said else command.end_input())
            assert (await printed(command))[2] == CommandEnd(status)


@with_web_sockets
async def test_command_on_a_terminal_when_left_is_interrupted(bench: PodBench) -> None:
    seconds = f"1000.{os.getpid()}"
    asked = CommandRequest(
        argv=("sh", "-c", f"echo began; sleep {seconds}; read line"),
        has_input=True,
        terminal=TerminalSize(columns=80, rows=24),
    )
    async with bench.commands.run(JOB, POD, asked) as command:
        await until_printed(command, b"began")

    async def is_over() -> bool:
        look = CommandRequest(argv=("sh", "-c", "cat /proc/[0-9]*/cmdline 2>&1"))
        async with bench.commands.run(JOB, POD, look) as command:
            return f"sleep\0{seconds}".encode() not in (await printed(command))[0]

    await until_it_is(is_over)


@with_web_sockets
async def test_command_of_many_long_words_arrives_whole_and_one_too_long_is_refused(bench: PodBench) -> None:
    words = ["é&=%+ \n" * 1000] * 20
    script = 'printf %s "$*" | wc -c'
    async with bench.commands.run(JOB, POD, CommandRequest(argv=("sh", "-c", script, "x", *words))) as command:
        out, _, _ = await printed(command)
    assert int(out) == len(" ".join(words).encode())
    with pytest.raises(InvalidInput, match="more than 256 KiB"):
        async with bench.commands.run(JOB, POD, CommandRequest(argv=("x" * (300 << 10),))):
            pass


async def test_pod_that_is_gone_or_does_not_run_has_no_commands(bench: PodBench) -> None:
    pod = bench.mirror.pods[POD]
    await bench.end_replica()
    with pytest.raises(WrongState, match="its replica a-worker-0 has just ended"):
        async with bench.commands.run(JOB, POD, TRUE):
            pass
    crashed = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "Crash"}}}]}
    for status in ({"phase": "Pending"}, {"phase": "Failed"}, crashed):
        bench.mirror.pods[POD] = msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))
        assert await bench.commands.replicas(JOB) == ()
        with pytest.raises(WrongState, match="does not run any more"):
            async with bench.commands.run(JOB, POD, TRUE):
                pass


async def test_mirror_that_is_behind_knows_no_replicas(bench: PodBench) -> None:
    bench.mirror.failure = "the API server does not answer"
    with pytest.raises(ClusterUnavailable, match=r"^the API server does not answer$"):
        await bench.commands.replicas(JOB)


@with_the_tests_own
async def test_without_the_right_the_component_that_grants_it_is_named(
    bench: PodBench, control_plane: ControlPlane
) -> None:
    bench.mirror.api = outsider = await Api.open(control_plane.kubeconfig(OUTSIDER))
    with pytest.raises(NotAllowed, match=r"exec\.enabled: cannot create .*403 Forbidden"):
        async with KubernetesCommands(bench.mirror, lambda job_id: bench.job).run(JOB, POD, TRUE):
            pass
    await outsider.close()


def a_pod(name: str, owner: str = "u1", kind: str = "PyTorchJob", label: str = OPERATOR_JOB_NAME) -> Pod:
    metadata = {"name": name, "labels": {label: "a"}, "ownerReferences": [{"kind": kind, "uid": owner}]}
    return msgspec.convert({"metadata": metadata}, Pod)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod("a-worker-0"), True),
        (a_pod("a-master-0"), True),
        (a_pod("a-launcher"), True),
        (a_pod("a-launcher-x7bcd", "u7", "Job"), True),
        (a_pod("a-0-x7bcd", "u1", "Job", JOB_NAME), True),
        (a_pod("a-0-x7bcd", "u2", "Job", JOB_NAME), False),
        (a_pod("a-worker-0", "u2"), False),
        (a_pod("a-worker-0", "u7", "Job"), False),
        (a_pod("a-launcher", "u2"), False),
        (a_pod("b-worker-0"), False),
        (a_pod("a-launchers"), False),
        (a_pod("database"), False),
    ],
    ids=lambda value: value.metadata.name + value.metadata.owner_references[0].uid if isinstance(value, Pod) else "",
)
def test_replica_is_what_its_operator_named_and_owns_whatever_labels_say(pod: Pod, expected: bool) -> None:
    assert is_replica(a_job("a", uid="u1"), pod) is expected


def test_container_is_the_one_that_trains_else_the_first() -> None:
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [{"name": "x"}, {"name": "pytorch"}]}}, Pod)
    assert container_of(pod, a_spec("a")) == "x"
    assert container_of(pod, a_spec("a", manifest=a_pytorchjob("a", "default"))) == "pytorch"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"?", "says no Status"),
        (
            b'{"status": "Failure", "message": "container not found (\\"main\\")"}',
            'its pod: container not found \\("main"',
        ),
        (b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "9999"}]}}', "in its pod"),
    ],
)
def test_status_that_tells_no_end_is_one_sentence(said: bytes, expected: str) -> None:
    with pytest.raises(ClusterUnavailable, match=expected):
        end_of(said, "true")
