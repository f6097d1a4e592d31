"""Sizes of a DeepSpeed configuration: what DeepSpeed's own function answered, and files that have none."""

import json
from pathlib import Path
from typing import Any

import pytest

from voda.domain.errors import InvalidInput
from voda.programs.deepspeed import elastic_section, gpu_counts, sizes_of_config

RECORDED = json.loads((Path(__file__).parent / "deepspeed-0.19.7.json").read_text("utf-8"))
SECTION = {"enabled": True, "version": 0.1, "max_train_batch_size": 16, "micro_batch_sizes": [2, 4]}


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: json.dumps(case["section"])[1:60])
def test_gpu_counts_when_deepspeed_computed_them_are_the_same(case: dict[str, Any]) -> None:
    section = elastic_section({"elasticity": {"enabled": True, "version": 0.1, **case["section"]}}, "ds.json")
    assert gpu_counts(section) == case["gpus"]


NO_SECTION = (
    "expected DeepSpeed's configuration with a section elasticity, got none: give the sizes by --workers 1,2,4 (in a"
    " manifest: voda.dev/sizes)"
)


def a_config(folder: Path, **changes: object) -> Path:
    file = folder / "ds.json"
    section = {name: value for name, value in {**SECTION, **changes}.items() if value is not None}
    file.write_text(json.dumps({"train_batch_size": "auto", "elasticity": section}), "utf-8")
    return file


def test_sizes_when_a_worker_has_several_gpus_are_those_that_make_whole_workers(tmp_path: Path) -> None:
    file = a_config(tmp_path)
    assert [*sizes_of_config(file, 1)] == [1, 2, 4, 8]
    assert [*sizes_of_config(file, 0)] == [1, 2, 4, 8]
    assert [*sizes_of_config(file, 2)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"enabled": None}, "elasticity.enabled: expected true, got false"),
        ({"enabled": False}, "elasticity.enabled: expected true, got false"),
        ({"enabled": 1}, "elasticity.enabled: expected true, got 1"),
        ({"version": 0.2}, "elasticity.version: expected 0.1, the one that counts GPUs alone, got 0.2"),
        (
            {"version": None},
            "elasticity.version: expected 0.1, the one that counts GPUs alone, got none, which DeepSpeed takes for 0.2",
        ),
        ({"model_parallel_size": 4}, "elasticity.model_parallel_size: expected 1 in version 0.1, got 4"),
        (
            {"max_train_batch_size": None},
            "elasticity.max_train_batch_size: expected a whole number from 1 to 100,000,000, got none",
        ),
        ({"min_gpus": "2"}, "elasticity.min_gpus: expected a whole number from 1 to 1,000,000, got '2'"),
        ({"min_gpus": 8, "max_gpus": 4}, "elasticity.max_gpus: expected min_gpus, 8, or more, got 4"),
        (
            {"micro_batch_sizes": [2, 32]},
            "elasticity.micro_batch_sizes: expected 1 to 32 whole numbers from 1 to max_train_batch_size, 16,"
            " got [2, 32]",
        ),
    ],
)
def test_config_when_it_has_no_such_section_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    file = a_config(tmp_path, **changes)
    with pytest.raises(InvalidInput) as refused:
        sizes_of_config(file, 1)
    assert str(refused.value) == f"{file}: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", NO_SECTION),
        ("[1]", NO_SECTION),
        ("[" * 100_000, "expected DeepSpeed's configuration, which is JSON: "),
        ("no", "expected DeepSpeed's configuration, which is JSON: "),
        ("1" * 1_000_001, "expected DeepSpeed's configuration of up to 1,000,000 bytes, got more"),
    ],
)
def test_config_when_it_is_something_else_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "ds.json"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidInput) as refused:
        sizes_of_config(file, 1)
    assert str(refused.value).startswith(f"{file}: {sentence}")


def test_config_when_its_gpu_counts_make_no_whole_worker_is_refused(tmp_path: Path) -> None:
    file = a_config(tmp_path)
    with pytest.raises(InvalidInput, match=r"fits \(1 to 8\) none makes 1 to 4,096 workers of 16 GPUs: change"):
        sizes_of_config(file, 16)


def test_config_when_it_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"absent\.json cannot be read: No such file or directory$"):
        sizes_of_config(tmp_path / "absent.json", 1)
