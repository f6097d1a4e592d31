"""voda.report in a process of its own, against an API that comes and goes."""

import csv
import json
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

import voda.report
from tests.ports import free_port
from tests.waiting import DEADLINE_S, wait_until
from voda.application.change_job import ProgressReport


class Api:
    """A stand-in for the API on a port of its own, which can be away."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, ProgressReport]] = []
        self.answers: list[int] = []
        """What to answer, one by one; then 204."""
        self.port = free_port()
        self._server: ThreadingHTTPServer | None = None

    def come(self) -> None:
        """Begin to answer."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                report = msgspec.json.decode(body, type=ProgressReport)
                api.requests.append((self.path, self.headers["Authorization"], report))
                self.send_response(api.answers.pop(0) if api.answers else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def go(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def epochs(self) -> list[float]:
        return [report.epoch for _, _, report in self.requests]


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.go()


def start(folder: Path, script: str, **env: str) -> subprocess.Popen[str]:
    """Start a training script that has only a copy of report.py, and no voda."""
    shutil.copy(voda.report.__file__, folder / "report.py")
    (folder / "train.py").write_text("from report import report, flush\n" + script)
    words = [sys.executable, "-S", "train.py"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def job_env(api: Api) -> dict[str, str]:
    url = f"http://127.0.0.1:{api.port}/"
    return {"VODA_API_URL": url, "VODA_JOB_ID": "team_a", "VODA_JOB_TOKEN": "t0ken"}


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate("\n", timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return out, err


def test_report_when_the_program_ends_right_after_it_arrives_whole(tmp_path: Path, api: Api) -> None:
    api.come()
    script = "report(epoch=3, epoch_time_s=12.5, workers=4, metrics={'accuracy': 0.9}, samples_per_s=7)"
    ended(start(tmp_path, script, **job_env(api)))
    ((path, token, sent),) = api.requests
    assert (path, token) == ("/api/v1/jobs/team_a/progress", "Bearer t0ken")
    assert msgspec.structs.replace(sent, report_id="") == ProgressReport(
        epoch=3, epoch_time_s=12.5, workers=4, metrics={"accuracy": 0.9}, samples_per_s=7
    )
    assert sent.report_id


def test_reports_when_the_api_is_away_wait_for_it_in_order(tmp_path: Path, api: Api) -> None:
    process = start(tmp_path, "for epoch in (1, 2, 3): report(epoch)\ninput()", **job_env(api))
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], DEADLINE_S)[0], "it has not noticed that nobody answers"
    said = process.stderr.readline()
    api.come()
    wait_until(lambda: api.epochs == [1, 2, 3])
    api.go()
    assert process.poll() is None
    _, err = ended(process)
    assert (said + err).count("is away") == 1


def test_report_when_the_api_stumbles_is_sent_again_under_the_same_id(tmp_path: Path, api: Api) -> None:
    api.answers = [503, 429, 204]
    api.come()
    ended(start(tmp_path, "report(1)", **job_env(api)))
    assert api.epochs == [1, 1, 1]
    assert len({report.report_id for _, _, report in api.requests}) == 1


def test_report_when_refused_is_let_go_and_told_once(tmp_path: Path, api: Api) -> None:
    api.answers = [403, 403]
    api.come()
    _, err = ended(start(tmp_path, "report(1); report(2)", **job_env(api)))
    assert api.epochs == [1, 2]
    assert err.count("refuses reports of this job with status 403") == 1


@pytest.mark.slow
def test_program_when_the_api_never_answers_ends_soon(tmp_path: Path, api: Api) -> None:
    began = time.perf_counter()
    ended(start(tmp_path, "report(1)", **job_env(api)))
    assert time.perf_counter() - began < voda.report.EXIT_FLUSH_S + DEADLINE_S / 2


def test_call_when_the_api_is_away_costs_microseconds(tmp_path: Path, api: Api) -> None:
    script = (
        "import time; report(0)\nlaps = []\nfor epoch in range(3000):\n"
        " began = time.perf_counter(); report(epoch, metrics={'loss': 1.0}); laps.append(time.perf_counter() - began)\n"
        "print(sorted(laps)[1500]); import os; os._exit(0)"
    )
    process = start(
        tmp_path, script.replace("print(", "print(flush=True, *[").replace("[1500])", "[1500]])"), **job_env(api)
    )
    out, _ = ended(process)
    assert float(out) < 100e-6


def test_call_when_given_nonsense_raises_nothing(tmp_path: Path, api: Api) -> None:
    api.come()
    script = (
        "report('x'); report(None); report(-1); report(float('nan')); report(1, metrics=7); report(2, workers='y')\n"
        "report(5, epoch_time_s=float('inf'), metrics={'a': float('nan'), 'b': 'c', 'd': 1, 5: 2})"
    )
    ended(start(tmp_path, script, **job_env(api)))
    ((_, _, sent),) = api.requests
    assert (sent.epoch, sent.epoch_time_s, sent.metrics) == (5, None, {"a": "nan", "d": 1.0, "5": 2.0})


def test_call_when_outside_a_job_does_nothing_and_says_so_once(tmp_path: Path) -> None:
    script = "import logging, threading; logging.basicConfig(level=10)\n"
    script += "report(1); report(2); print(threading.active_count())"
    out, err = ended(start(tmp_path, script))
    assert out == "1\n"
    assert err.count("no reports") == 1


def test_rows_when_a_metrics_folder_is_named_have_the_ancestors_columns(tmp_path: Path) -> None:
    env = {"VODA_METRICS_DIR": str(tmp_path / "m"), "JOB_NAME": "resnet/7", "EPOCHS": "9"}
    ended(start(tmp_path, "report(1, 2.5, 4, {'loss': 0.5}); report(1.5); report(2, 2.25, 4)", **env))
    ended(start(tmp_path, "report(3, None, 2, {'new': 1, 'loss': 0.25}, step_time_s=0.1)", **env))
    with (tmp_path / "m" / "resnet_7.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[:7] == voda.report.COLUMNS
    told = [(row["epoch"], row["epoch_time_sec"], row["workers"], row["loss"], row["global_epochs"]) for row in rows]
    assert told == [("0", "2.5", "4", "0.5", "1"), ("1", "2.25", "4", "", "2"), ("2", "", "2", "0.25", "3")]
    assert {row["total_epochs"] for row in rows} == {"9"}


@pytest.mark.slow
def test_rows_when_the_api_is_away_are_written_all_the_same(tmp_path: Path, api: Api) -> None:
    env = {**job_env(api), "VODA_METRICS_DIR": str(tmp_path)}
    ended(start(tmp_path, "for epoch in (1, 2, 3): report(epoch)", **env))
    with (tmp_path / "team_a.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2"]


def test_reports_when_the_token_or_the_address_is_none_are_let_go_with_a_word(tmp_path: Path, api: Api) -> None:
    api.come()
    for wrong in ({"VODA_JOB_TOKEN": "a\nb"}, {"VODA_API_URL": "http://here:port/"}):
        began = time.perf_counter()
        _, err = ended(start(tmp_path, "report(1); report(2)", **{**job_env(api), **wrong}))
        assert err.count("voda.report: ") == 1
        assert "Traceback" not in err
        assert "a\\nb" not in err
        assert time.perf_counter() - began < DEADLINE_S / 2
    assert api.epochs == []


def test_child_when_forked_does_not_send_what_its_parent_sends(tmp_path: Path, api: Api) -> None:
    api.come()
    script = "import os\nreport(1)\npid = os.fork()\nif pid == 0:\n report(7); flush(); os._exit(0)\nos.waitpid(pid, 0)"
    ended(start(tmp_path, script, **job_env(api)))
    assert sorted(api.epochs) == [1, 7]


def test_module_when_imported_needs_the_standard_library_alone() -> None:
    code = "import sys, json; import voda.report; print(json.dumps([m for m in sys.modules if m.startswith('voda')]))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert json.loads(out.stdout) == ["voda", "voda.report"]
