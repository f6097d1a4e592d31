"""What a program may have, as users write it."""

import pytest

from voda.domain.errors import InvalidInput
from voda.programs.amounts import cpus_of, memory_of, nice_of, retries_of
from voda.programs.launchers import Launcher
from voda.programs.program_manifest import ProgramJob, program_manifest


@pytest.mark.parametrize(
    ("text", "amount"), [("8Gi", "8Gi"), ("8GiB", "8Gi"), ("1.5Gi", "1536Mi"), ("500M", "477Mi"), ("1024Ki", "1Mi")]
)
def test_memory_is_that_of_manifests(text: str, amount: str) -> None:
    assert memory_of(text) == amount


@pytest.mark.parametrize("text", ["1Ki", "0Gi", "-1Gi", "8", "8 apples", "", "9" * 40 + "Gi", "2000000Ti"])
def test_odd_memory_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--memory: expected memory of a worker such as 8Gi, 1Mi or more, got "):
        memory_of(text)


@pytest.mark.parametrize("text", ["0", "nan", "inf", "-1", "1e3", "0.001", ""])
def test_odd_cpus_are_refused_by_their_option(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--cpus: expected CPUs of a worker such as 4 or 0.5, got "):
        cpus_of(text)


def test_tries_and_niceness_have_bounds() -> None:
    assert (cpus_of("0.50"), retries_of(0), nice_of(19)) == ("0.5", 0, 19)
    with pytest.raises(InvalidInput, match=r"^--nice: expected 0 to 19, got 20$"):
        nice_of(20)
    with pytest.raises(InvalidInput, match=r"^--retries: expected 0 to 1,000, got -1$"):
        retries_of(-1)


@pytest.mark.parametrize(("launcher", "image"), [("mpirun", ""), ("torchrun", ""), ("plain", ""), ("plain", "i:1")])
def test_limits_are_where_the_kind_of_the_manifest_has_them(launcher: Launcher, image: str) -> None:
    job = ProgramJob(
        name="a", words=("python", "a.py"), launcher=launcher, memory="8Gi", cpus="4", retries=2, nice=3, image=image
    )
    manifest = program_manifest(job)
    spec = manifest["spec"]
    policy = spec if "template" in spec else spec["runPolicy"]
    roles = spec.get("mpiReplicaSpecs") or spec.get("pytorchReplicaSpecs") or {"Worker": spec}
    (container,) = roles["Worker"]["template"]["spec"]["containers"]
    assert policy["backoffLimit"] == 2
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "8Gi", "cpu": "4"}
    assert manifest["metadata"]["annotations"]["voda.dev/nice"] == "3"
