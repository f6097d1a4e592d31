"""Programs that ask for a part of a GPU: what their manifest says, and what is refused in one sentence."""

from typing import Any

import pytest

from voda.domain.errors import InvalidInput
from voda.programs.program import Program, start_of
from voda.programs.program_manifest import program_manifest


def limits_of(**options: Any) -> object:
    manifest = program_manifest(start_of(Program(["sleep", "1"], **options)).job)
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    return container.get("resources")


def test_part_of_a_gpu_is_asked_for_in_hundredths_and_mebibytes() -> None:
    assert limits_of(gpu_milli=250, gpu_memory="4Gi") == {
        "limits": {"elasticgpu.io/gpu-core": 25, "elasticgpu.io/gpu-memory": 4_096}
    }
    assert limits_of(gpu_milli=10) == {"limits": {"elasticgpu.io/gpu-core": 1}}
    assert limits_of(gpu_memory="500Mi") == {"limits": {"elasticgpu.io/gpu-memory": 500}}
    assert limits_of() == {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gpu_milli": 255}, "--gpu-milli: expected 10, 20, ... to 990 thousandths of a GPU, got '255'"),
        ({"gpu_milli": 1_000}, "got '1000'; whole GPUs are --gpus-per-worker N"),
        ({"gpu_milli": -10}, "got '-10'"),
        ({"gpu_memory": "4GB"}, "--gpu-memory: expected memory of a GPU such as 4Gi or 500Mi, got '4GB'"),
        ({"gpu_memory": "0Gi"}, "got '0Gi'"),
        ({"gpu_memory": "999999999Ti"}, "got '999999999Ti'"),
        ({"gpu_milli": 250, "gpus_per_worker": 2}, "are for a plain program with one worker"),
        ({"gpu_milli": 250, "workers": "2", "launcher": "torchrun"}, "are for a plain program with one worker"),
        ({"gpu_memory": "4Gi", "launcher": "mpirun"}, "are for a plain program with one worker"),
    ],
)
def test_part_that_no_program_can_have_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits_of(**options)
    assert named in str(refused.value)
