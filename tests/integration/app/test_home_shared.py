"""Replicas that begin at the same instant share a folder without getting in each other's way."""

import subprocess
import sys
from pathlib import Path

_ROUNDS = 50
_REPLICAS = 4
_WAIT_S = 120
# They keep step by the files that each of them makes, so that all are at the same line at once.
_REPLICA = """
import os, sys
from pathlib import Path
from voda.app.home import Home, ServerFile

folder, me, rounds, replicas = Path(sys.argv[1]), *map(int, sys.argv[2:])
for number in range(rounds):
    home = Home(folder / str(number))
    home.make()
    (home.jobs / str(me)).touch()
    while len(os.listdir(home.jobs)) < replicas:
        os.sched_yield()
    home.bind("voda.db")
    home.publish(ServerFile(url="http://127.0.0.1:1", pid=os.getpid(), version="1"))
    home.publish(ServerFile(url="http://127.0.0.1:2", pid=os.getpid(), version="1"))
"""


def test_home_when_replicas_begin_at_once_then_each_finds_log_and_server_whole(tmp_path: Path) -> None:
    numbers = (str(_ROUNDS), str(_REPLICAS))
    replicas = [
        subprocess.Popen([sys.executable, "-c", _REPLICA, str(tmp_path), str(me), *numbers], stderr=subprocess.PIPE)
        for me in range(_REPLICAS)
    ]
    try:
        # Whoever fails first leaves the others waiting.
        said = [replica.communicate(timeout=_WAIT_S)[1].decode() for replica in replicas]
    finally:
        for replica in replicas:
            replica.kill()
            replica.wait()
    assert said == [""] * _REPLICAS
    assert {path.name for path in (tmp_path / "0").iterdir()} == {"jobs", "log.place", "server.json"}
