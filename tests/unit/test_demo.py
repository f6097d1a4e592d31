"""Claims about what `make demo` tells of the log."""

import runpy
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.parametrize(
    ("before", "after", "reason", "told"),
    [
        (
            (),
            (0, 1, 2, 3),
            "starts with 4 workers, it is the only job for 4 GPUs",
            "starts 0 → 4: it is the only job for 4 GPUs",
        ),
        ((0,), (0, 1), "grown from 1 to 2 workers: both jobs share 4 GPUs", "grows 1 → 2: both jobs share 4 GPUs"),
    ],
)
def test_resize_when_told_names_the_sizes_once(
    capsys: pytest.CaptureFixture[str], before: tuple[int, ...], after: tuple[int, ...], reason: str, told: str
) -> None:
    story: Any = runpy.run_path(str(DEMO))["Story"]()
    if before:
        story.take("worker.started", {"job_id": "digits-1", "workers": before})
    story.take("plan.adopted", {"reasons": {"digits-1": reason}})
    story.take("worker.started", {"job_id": "digits-1", "workers": after})
    assert capsys.readouterr().out.splitlines()[-1].endswith(told)
