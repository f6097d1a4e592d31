"""`python -m benchmarks.kube.profiled FILE ARGUMENT ...`: voda under cProfile, which writes FILE when voda ends.

SIGUSR1 lets the profile begin anew. Times are CPU seconds of the main thread: on a busy machine it waits for a core
whatever it does.
"""

import cProfile
import signal
import sys
import time

import voda.cli

if __name__ == "__main__":
    path = sys.argv.pop(1)
    profile = cProfile.Profile(time.thread_time)
    signal.signal(signal.SIGUSR1, lambda number, frame: profile.clear())
    try:
        profile.runcall(voda.cli.main)
    finally:
        profile.dump_stats(path)
