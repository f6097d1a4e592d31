"""Starts a small shell that kills what a killed launcher leaves behind.

The kernel's own way (PR_SET_PDEATHSIG) will not do: it sends the signal once for each thread of a dying parent, and at
the second SIGTERM mpirun ends at once and leaves its processes behind. Rule: the shell learns of the launcher's
death by the end of a pipe that no other process holds.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from voda.launcher.commands import RUN_DIR

PID_FILE: Final = "pid"
"""In the launcher's folder: the process that runs the program; absent while none does."""
ENDS_S: Final = 5.0
# $1: the launcher's folder. A line means that the launcher ends in order.
_SHELL: Final = f"""\
read -r _ && exit
if read -r pid < "$1/{PID_FILE}"; then
  kill -TERM "$pid"
  tries=0
  while kill -0 "$pid" && test $tries -lt 30; do
    sleep 0.1
    tries=$((tries + 1))
  done
fi 2>/dev/null
for file in $(grep -alF "{RUN_DIR}=$1" /proc/[0-9]*/environ 2>/dev/null); do
  pid=${{file#/proc/}}
  kill -KILL "${{pid%/environ}}" 2>/dev/null
done
rm -rf "$1"
"""


@asynccontextmanager
async def killing_orphans(folder: Path) -> AsyncIterator[None]:
    """Have every process with the folder in its environment killed if this process dies within the block."""
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _SHELL,
            "voda-orphan-killer",
            str(folder),
            stdin=read_end,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(write_end, b"\n")
        os.close(write_end)
        try:
            async with asyncio.timeout(ENDS_S):
                await process.wait()
        except TimeoutError:
            # The program is over; how the launcher ends must not depend on a slow shell.
            with suppress(ProcessLookupError):
                process.kill()
