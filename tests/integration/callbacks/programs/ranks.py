"""Runs a training at one size after the other, each rank in a fork of this process: frameworks take seconds to import.

Rule: a rank finds what torchrun tells it in its environment, and notes in a file of its own which samples it trained.
"""

# mypy: ignore-errors
# ruff: noqa: TID251, T201 - no part of voda

import collections
import json
import os
import socket
import sys
import traceback
from pathlib import Path


def train_in_turn(case, sizes, train, *, samples=120):
    """Train at each (size, stop) in a folder, and print what came as one line of JSON."""
    folder = Path(case)
    folder.mkdir()
    os.environ["VODA_JOB_ID"] = case
    exits = [_run(size, folder, lambda stop=stop: train(folder, stop)) for size, stop in sizes]
    seen = collections.Counter(int(each) for file in folder.glob("seen-*") for each in file.read_text().split())
    times = collections.Counter(seen[sample] for sample in range(samples))
    print(json.dumps({"case": case, "exits": exits, "times": times}), flush=True)


def note(folder, samples):
    with (folder / f"seen-{os.getpid()}").open("a") as file:
        file.write(" ".join(str(int(sample)) for sample in samples) + "\n")


def _run(size, folder, train):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port, "GROUP_RANK": 0}
    told |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "none"}
    ranks = [_fork({**told, "RANK": rank, "LOCAL_RANK": rank}, folder, train) for rank in range(size)]
    return [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]


def _fork(told, folder, train):
    if pid := os.fork():
        return pid
    os.environ.update({name: str(value) for name, value in told.items()})
    # What frameworks print is for those who look for a failure.
    words = os.open(folder / f"output-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    os.dup2(words, 1)
    os.dup2(words, 2)
    status = 1
    try:
        train()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
