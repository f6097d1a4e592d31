"""The end of `voda up` on request, with a job that does not care."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks.served import manifest, start
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120.0
GRACE_S = 45
STUBBORN = 'trap "" TERM; echo $$$$ > "$VODA_JOB_DIR/pid"; while :; do sleep 0.1; done'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_voda_when_told_to_end_twice_does_not_wait_for_who_ignores_it(tmp_path: Path, number: signal.Signals) -> None:
    served = start(tmp_path, "--port", "0", "--slots", "1", "--ratelimit", "0", "--halt-on-exit")
    body = manifest("stubborn", STUBBORN)
    body["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_S
    served.ask("POST", "/api/v1/jobs", body)
    pid = tmp_path / "jobs" / "stubborn" / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().strip(), lambda: "the job to start")
    served.process.send_signal(number)
    wait_until(lambda: "halting the jobs" in (tmp_path / "up.log").read_text(), lambda: "voda to hear it")
    time.sleep(0.3)
    assert served.process.poll() is None
    told_at = time.perf_counter()
    served.process.send_signal(number)
    assert served.process.wait(timeout=WAIT_S) == 0
    assert time.perf_counter() - told_at < GRACE_S / 2
    said = (tmp_path / "up.log").read_text()
    assert "stopped at once" in said
    assert "Traceback" not in said
    # The job is still being halted, whoever looks after it.
    os.kill(int(pid.read_text()), signal.SIGKILL)
    served = start(tmp_path, "--port", "0", "--slots", "1", "--ratelimit", "0")
    served.ask("DELETE", "/api/v1/jobs/stubborn")
    wait_until(lambda: served.get("/api/v1/jobs/stubborn")["phase"] == "Canceled", lambda: "the job to be canceled")
    served.stop()
