"""Reports a training program's epochs to voda: `from voda.report import report`.

This file stands alone: it needs the standard library of Python 3.8 or later and nothing else, and may be copied next
to a training script. Rule: a report costs the program microseconds and never an exception; all that can be slow or
fail happens in a thread of its own, which keeps trying while the API is away.
"""

from __future__ import annotations

import atexit
import csv
import http.client
import io
import json
import logging
import math
import os
import re
import socket
import ssl
import struct
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["flush", "report"]

COLUMNS = ("epoch", "epoch_time_sec", "step_time_sec", "workers", "start_time", "global_epochs", "total_epochs")
"""Of the CSV file; metrics follow in columns of their own."""
KEPT = 1_000
"""Reports that wait while the API is away; the oldest go first, because a later epoch implies it."""
TIMEOUT_S = 5.0
EXIT_FLUSH_S = 3.0
"""How long the end of the program waits for the last reports."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

_log = logging.getLogger("voda.report")
_RETRIED = frozenset({408, 425, 429})
_METRICS = 50
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_KEY = 64


def report(  # noqa: PLR0913 - one parameter per figure
    epoch: float,
    epoch_time_s: float | None = None,
    workers: int | None = None,
    metrics: Mapping[str, float] | None = None,
    *,
    step_time_s: float | None = None,
    samples_per_s: float | None = None,
    epoch_samples: float | None = None,
) -> None:
    """Report progress; call it on rank 0 alone, after each epoch or now and then within one.

    It returns at once and raises nothing. Outside a voda job, and without VODA_METRICS_DIR, it does nothing.

    Args:
        epoch: epochs done since the job's beginning, the one just finished included; 3.5 = half of the fourth.
        epoch_time_s: seconds of the last epoch; leave it out when a restart fell into it.
        workers: processes that trained it.
        metrics: such as {"loss": 0.1, "accuracy": 0.98}; what is no number is left out, with a warning that names it.
        step_time_s: mean seconds of a step.
        samples_per_s: of all workers together: of the last epoch, or since the last change of them where the epoch is
            not over.
        epoch_samples: in the epoch, whether it is over or not, such as len(dataset): with it, the work that is left is
            known before the first epoch ends.
    """
    try:
        figures = {
            "epoch_time_s": _number(epoch_time_s),
            "step_time_s": _number(step_time_s),
            "samples_per_s": _number(samples_per_s),
            "epoch_samples": _number(epoch_samples),
        }
        done = _number(epoch)
        if done is None or done < 0:
            _log.warning("voda.report: epoch is %r, expected a number >= 0; not reported", epoch)
            return
        body: dict[str, object] = {name: value for name, value in figures.items() if value is not None and value >= 0}
        if workers is not None:
            body["workers"] = int(workers)
        _reporter.take({"epoch": done, **body, "metrics": _values(metrics or {})})
    except Exception as error:  # training must go on, whatever it passed
        _log.warning("voda.report: not reported: %r", error)


def flush(timeout_s: float = EXIT_FLUSH_S) -> bool:
    """Wait until all reports are delivered, `timeout_s` at most, and say whether they are."""
    return _reporter.flush(timeout_s)


class _Reporter:
    """Takes reports, and queues them for the API and the CSV file."""

    def __init__(self) -> None:
        self._outboxes: tuple[_Outbox, ...] | None = None

    def take(self, body: dict[str, object]) -> None:
        if self._outboxes is None:
            self._outboxes = self._begin()
        whole = {**body, "report_id": uuid.uuid4().hex}  # noqa: TID251 - stands alone
        for outbox in self._outboxes:
            outbox.add(whole)

    def flush(self, timeout_s: float) -> bool:
        ends_at = time.perf_counter() + timeout_s
        delivered = [outbox.flush(max(0.0, ends_at - time.perf_counter())) for outbox in self._outboxes or ()]
        return all(delivered)

    def _begin(self) -> tuple[_Outbox, ...]:
        env = os.environ  # noqa: TID251 - stands alone
        outboxes = []
        # The file does not wait for an API that is away.
        if env.get("VODA_METRICS_DIR"):
            outboxes.append(_Outbox(_File(env).deliver))
        if env.get("VODA_API_URL") and env.get("VODA_JOB_ID"):
            try:
                outboxes.append(_Outbox(_ProgressApi(env).deliver))
            except ValueError as error:
                _log.warning("voda.report: VODA_API_URL is no address (%s): the API gets no reports", error)
        if outboxes:
            atexit.register(self.flush, EXIT_FLUSH_S)
            # Threads do not survive a fork, and the parent delivers what it has queued.
            os.register_at_fork(after_in_child=self._forget)
        else:
            _log.debug("voda.report: neither VODA_API_URL and VODA_JOB_ID nor VODA_METRICS_DIR is set: no reports")
        return tuple(outboxes)

    def _forget(self) -> None:
        for outbox in self._outboxes or ():
            outbox.forget()


class _Outbox:
    """Reports on their way to one receiver, delivered from a thread of its own, in their order."""

    def __init__(self, deliver: Callable[[dict[str, object]], bool]) -> None:
        self._deliver = deliver
        self.forget()

    def forget(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[dict[str, object]] = deque(maxlen=KEPT)
        self._thread: threading.Thread | None = None
        self._is_hurried = False

    def add(self, body: dict[str, object]) -> None:
        with self._changed:
            self._waiting.append(body)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="voda-report", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            delivered = self._changed.wait_for(lambda: not self._waiting, timeout_s)
            self._is_hurried = False
        return delivered

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                body = self._waiting[0]
            if self._deliver(body):
                pause_s = FIRST_PAUSE_S
                with self._changed:
                    # It may have been pushed out by newer ones in the meantime.
                    if self._waiting and self._waiting[0] is body:
                        self._waiting.popleft()
                    self._changed.notify_all()
                continue
            with self._changed:
                self._changed.wait(min(pause_s, FIRST_PAUSE_S) if self._is_hurried else pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over the Unix socket of this machine's voda, whose place no other user can take."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        # Where others fill the server's backlog, a socket that blocks waits in line, and any other has EAGAIN at once.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(TIMEOUT_S), 0))
        self.sock.connect(self._socket_path)
        self.sock.settimeout(TIMEOUT_S)


class _ProgressApi:
    """The API that gets the reports; deliver() returns whether a report needs no other try."""

    def __init__(self, env: Mapping[str, str]) -> None:
        url = urlsplit(env["VODA_API_URL"])
        self._socket = unquote(url.path) if url.scheme == "unix" else ""
        self._host, self._port, self._is_tls = url.hostname or "", url.port, url.scheme == "https"
        base = "" if self._socket else url.path.rstrip("/")
        self._path = f"{base}/api/v1/jobs/{quote(env['VODA_JOB_ID'], safe='')}/progress"
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {env.get('VODA_JOB_TOKEN', '')}"}
        # Only needed where this machine does not know the signer of the API's certificate.
        self._ca = env.get("VODA_CA") or None
        self._is_away = False
        self._was_refused = False

    def deliver(self, body: dict[str, object]) -> bool:
        try:
            status = self._post(json.dumps(body, allow_nan=False).encode())
        except (OSError, http.client.HTTPException) as error:
            self._note_absence(repr(error))
            return False
        except ValueError as error:
            # A token or an address that no request can carry.
            return self._note_refusal(f"cannot be asked ({type(error).__name__})")
        if status >= 500 or status in _RETRIED:
            self._note_absence(f"it answers {status}")
            return False
        self._is_away = False
        return status < 300 or self._note_refusal(f"refuses reports of this job with status {status}")

    def _post(self, body: bytes) -> int:
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            response.read(65_536)
            return response.status
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._socket:
            return _SocketConnection(self._socket)
        # No proxy is asked: the API is on this machine or in this cluster.
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        trust = ssl.create_default_context()
        if self._ca:
            trust.load_verify_locations(self._ca)
            # The certificate itself may be named instead of its signer's. Python knows the flag's name from 3.10 on.
            trust.verify_flags |= 0x80000
            # No certificate of a login node names its loopback address.
            trust.check_hostname = self._host not in _LOOPBACK
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=trust)

    def _note_refusal(self, what: str) -> bool:
        """Log it once, and give the report up: the next try would end the same."""
        if not self._was_refused:
            _log.warning("voda.report: the API %s", what)
        self._was_refused = True
        return True

    def _note_absence(self, reason: str) -> None:
        if not self._is_away:
            where = self._socket or self._host
            _log.warning("voda.report: the API at %s is away (%s); reports wait for it", where, reason)
        self._is_away = True


class _File:
    """The job's CSV file in VODA_METRICS_DIR: one row per whole epoch; deliver() never wants another try."""

    def __init__(self, env: Mapping[str, str]) -> None:
        name = env.get("VODA_JOB_ID") or env.get("JOB_NAME") or "job"
        self._path = os.path.join(env["VODA_METRICS_DIR"], re.sub(r"[^A-Za-z0-9_.-]", "_", name) + ".csv")
        self._total = env.get("EPOCHS", "")
        self._start_time = time.strftime("%Y-%m-%d %H:%M:%S")
        self._columns: list[str] = []
        self._has_failed = False

    def deliver(self, body: dict[str, object]) -> bool:
        done = body["epoch"]
        if isinstance(done, float) and done.is_integer() and done >= 1:
            self._add(int(done), body)
        return True

    def _add(self, done: int, body: dict[str, object]) -> None:
        metrics = body["metrics"]
        row: dict[str, object] = dict(metrics) if isinstance(metrics, dict) else {}
        row.update(
            epoch=done - 1,
            epoch_time_sec=body.get("epoch_time_s", ""),
            step_time_sec=body.get("step_time_s", ""),
            workers=body.get("workers", ""),
            start_time=self._start_time,
            global_epochs=done,
            total_epochs=self._total,
        )
        try:
            self._append(row)
        except (OSError, UnicodeError, csv.Error) as error:
            if not self._has_failed:
                _log.warning("voda.report: %s cannot be written: %s", self._path, error)
            self._has_failed = True

    def _append(self, row: dict[str, object]) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "a+", encoding="utf-8", newline="") as file:
            file.seek(0)
            text = io.StringIO()
            self._columns = self._columns or next(csv.reader([file.readline()]), [])
            if not self._columns:
                self._columns = [*COLUMNS, *sorted(name for name in row if name not in COLUMNS)]
                csv.writer(text).writerow(self._columns)
            csv.DictWriter(text, self._columns, restval="", extrasaction="ignore").writerow(row)
            # In one write, so that a reader sees whole rows.
            file.write(text.getvalue())


def _number(value: object) -> float | None:
    """Return a finite number, or None; tensors and numpy's numbers count too."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _values(metrics: Mapping[str, object]) -> dict[str, float | str]:
    """Return the metrics by their names; nan and inf as words, for JSON has no numbers for them."""
    found: dict[str, float | str] = {}
    for name, value in list(metrics.items())[:_METRICS]:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            if name not in _warned:
                _warned.add(name)
                _log.warning("voda.report: metric %s is no number, and is left out: %.80r", name, value)
            continue
        found[str(name)[:_KEY]] = number if math.isfinite(number) else str(number)
    return found


_warned: set[str] = set()
_reporter = _Reporter()
