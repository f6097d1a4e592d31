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
            {"kind": "starts", "workers": 4, "why": [{"kind": "in_order", "running": 1, "gpus": 4}]},
            "starts 0 → 4: it is the only job for 4 GPUs",
        ),
        (
            (0,),
            (0, 1),
            {"kind": "resized", "had": 1, "workers": 2, "why": [{"kind": "in_order", "running": 2, "gpus": 4}]},
            "grows 1 → 2: both jobs share 4 GPUs, first submitted first",
        ),
    ],
)
def test_resize_when_told_names_the_sizes_once(
    capsys: pytest.CaptureFixture[str],
    before: tuple[int, ...],
    after: tuple[int, ...],
    reason: dict[str, Any],
    told: str,
) -> None:
    story: Any = runpy.run_path(str(DEMO))["Story"]()
    if before:
        story.take("worker.started", {"job_id": "digits-1", "workers": before})
    story.take("plan.adopted", {"reasons": {"digits-1": reason}})
    story.take("worker.started", {"job_id": "digits-1", "workers": after})
    assert capsys.readouterr().out.splitlines()[-1].endswith(told)


def test_jobs_that_have_no_news_say_how_far_they_are_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    story: Any = runpy.run_path(str(DEMO))["Story"]()
    story.take("worker.started", {"job_id": "digits-1", "workers": (0, 1)})
    story.take("job.progressed", {"job_id": "digits-1", "epochs_done": 2.0, "metrics": {}})
    capsys.readouterr()
    story.remind()
    assert capsys.readouterr().out == ""
    story.said_at -= 6.0
    story.remind()
    story.remind()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("epochs done: digits-1 2")


def test_lines_of_the_demo_fit_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    demo = runpy.run_path(str(DEMO))
    story: Any = demo["Story"](demo["TEAMS"])
    story.take("plan.adopted", {"reasons": {"vision-1": {"kind": "halted", "text": "a reason of many words " * 8}}})
    story.take("worker.started", {"job_id": "vision-1", "workers": range(8)})
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines) > 1, max(map(len, lines)) <= 100) == (True, True)
