"""`python -m benchmarks.kube.blocked FILE ARGUMENT ...`: voda, and in FILE for each second how long its event loop kept
new work waiting: the seconds of CPU that the loop's thread used until then, at most, and the seconds that passed.

Rule: the CPU time is what counts: on a busy machine the thread waits for a core, whatever voda does.
"""

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import voda.cli
from voda.cli import execution

_EVERY_S = 0.005


def _watch(loop: asyncio.AbstractEventLoop, thread: int, path: Path) -> None:
    """Ask the loop for a call again and again, and note how long it took to come."""
    cpu = time.pthread_getcpuclockid(thread)
    second, most_cpu_s, most_s = int(time.perf_counter()), 0.0, 0.0
    with path.open("a") as file:
        while loop.is_running():
            came, used, began = threading.Event(), time.clock_gettime(cpu), time.perf_counter()
            loop.call_soon_threadsafe(came.set)
            came.wait(10.0)
            most_cpu_s = max(most_cpu_s, time.clock_gettime(cpu) - used)
            most_s = max(most_s, time.perf_counter() - began)
            if int(time.perf_counter()) != second:
                print(f"{most_cpu_s:.6f} {most_s:.6f}", file=file, flush=True)
                second, most_cpu_s, most_s = int(time.perf_counter()), 0.0, 0.0
            time.sleep(_EVERY_S)


def seconds_noted(path: Path) -> int:
    """Return how many lines a file has."""
    return len(path.read_text().splitlines())


def blocked_s(path: Path, since: int) -> tuple[float, float]:
    """Return the longest in the lines of a file from a number on: seconds of CPU, and seconds that passed."""
    lines = [line.split() for line in path.read_text().splitlines()[since:]]
    return max(float(line[0]) for line in lines), max(float(line[1]) for line in lines)


def main() -> None:
    """Run voda with a watch on its loop."""
    path, run = Path(sys.argv.pop(1)), cast(Any, execution)._run_until_signal

    async def watched(*arguments: Any) -> bool:
        this = threading.get_ident()
        threading.Thread(target=_watch, args=(asyncio.get_running_loop(), this, path), daemon=True).start()
        return bool(await run(*arguments))

    cast(Any, execution)._run_until_signal = watched
    voda.cli.main()


if __name__ == "__main__":
    main()
