"""What voda reads of processes that are anybody's: neither names nor environments mislead it or hold it up."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from voda.process_table import marked_processes

OTHER = os.geteuid() or 65_534
"""A uid that is not root's."""
WAIT = "print(flush=True); input()"


@contextmanager
def a_process(script: str = WAIT, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a script that prints a line and waits for its input to end; yield its pid."""
    user = OTHER if os.geteuid() == 0 else None
    process = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-S", "-c", script],
        env=env or {},
        user=user,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


def test_process_that_is_called_like_a_line_on_its_user_belongs_to_its_user(tmp_path: Path) -> None:
    forge = f"open('/proc/self/comm', 'w', newline='').write('\\rUid:\\t0\\r'); {WAIT}"
    with a_process(forge, {"VODA_REPLICA": str(tmp_path)}) as pid:
        assert Path(f"/proc/{pid}/comm").read_bytes() == b"\rUid:\t0\r\n"
        assert [found for found, _ in marked_processes(tmp_path, uid=OTHER)] == [pid]
        assert [found for found, _ in marked_processes(tmp_path, uid=OTHER + 1)] == []
