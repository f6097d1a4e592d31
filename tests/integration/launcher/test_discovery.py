"""Discovery scripts that misbehave: whatever they do, there is an answer in time, and nothing stays behind."""

from pathlib import Path

import pytest

from tests.waiting import DEADLINE_S, is_alive, until
from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.launcher.hosts import Discovery

IN_BACKGROUND = "sleep 1000 &\necho $! >pid\necho localhost:2\n"
HANGS = "echo $$ >pid\nexec sleep 1000\n"


def a_discovery(folder: Path, script: str, *, timeout_s: float = DEADLINE_S) -> Discovery:
    path = folder / "hosts.sh"
    path.write_text(f"cd {folder}\n{script}")
    return Discovery(path, slots_per_host=1, timeout_s=timeout_s)


@pytest.mark.slow
@pytest.mark.parametrize("script", [IN_BACKGROUND, HANGS])
async def test_script_when_it_or_what_it_started_hangs_leaves_no_process(tmp_path: Path, script: str) -> None:
    with pytest.raises(ClusterUnavailable, match="took longer than 2 s"):
        await a_discovery(tmp_path, script, timeout_s=2.0).list_hosts()
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not is_alive(pid))


async def test_script_when_it_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="failed with exit code 3: no cluster"):
        await a_discovery(tmp_path, "echo no cluster >&2; exit 3").list_hosts()


async def test_script_when_it_prints_for_ever_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="more than 1000000 bytes"):
        await a_discovery(tmp_path, "yes").list_hosts()
