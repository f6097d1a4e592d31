"""The page about PyTorch: each of its blocks is run as it stands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.served import environment, start
from tests.needs import TORCH_VENV, needs_torch_venv

pytestmark = [pytest.mark.slow, needs_torch_venv(), pytest.mark.timeout(900)]
PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 300.0


def test_each_block_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    served = start(home, "--port", "0", "--ratelimit", "0", "--slots", "2", "--single-user", "--halt-on-exit")
    mine = {**environment(home)}
    mine["PATH"] = f"{TORCH_VENV.absolute() / 'bin'}{os.pathsep}{mine['PATH']}"
    printed = ""
    try:
        for language, file, text in BLOCK.findall(PAGE.read_text("utf-8")):
            if file:
                (folder / file).write_text(text)
                continue
            assert language == "bash"
            done = subprocess.run(
                ["bash", "-e", "-c", text],
                env=mine,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            assert done.returncode == 0, text + done.stdout + done.stderr
            printed += done.stdout
    finally:
        served.stop()
    for said in (
        "rank 0 of 2 begins at epoch 0",
        "20 reports, epochs 1 to 20",
        "RuntimeError: a bug",
        "third-2 submitted: goes on in the folder of third",
        "Goes on",
    ):
        assert said in printed, printed
    assert (folder / "third.csv").read_text().startswith("epoch,reported_at,workers,epoch_s,loss\n13.0,")
