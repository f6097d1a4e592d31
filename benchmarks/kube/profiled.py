"""`python -m benchmarks.kube.profiled FILE ARGUMENT ...`: voda under cProfile, which writes FILE when voda ends."""

import cProfile
import sys

import voda.cli

if __name__ == "__main__":
    path = sys.argv.pop(1)
    profile = cProfile.Profile()
    try:
        profile.runcall(voda.cli.main)
    finally:
        profile.dump_stats(path)
