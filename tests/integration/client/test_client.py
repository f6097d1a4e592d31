"""The Python client against the real API: what it returns and raises, and what it does when connections are lost."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import a_spec
from tests.served import Printed, Server, served
from tests.service import START, a_manifest
from tests.waiting import DEADLINE_S, until
from voda.api.presenters.jobs import job_of
from voda.client import (
    AlreadyExists,
    AsyncClient,
    Client,
    ClientClosed,
    InvalidField,
    InvalidInput,
    NotFound,
    PermanentError,
    Program,
    RetryLater,
    ServerUnreachable,
    WaitTimeout,
    WrongState,
)
from voda.events.types import JobCanceled, JobCompleted, JobProgressed, JobSubmitted, WorkerStarted
from voda.projections.jobs.record import new_record

PRINTED = "first\nsecond ✓\nlast without an end"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with one node and no job."""
    with served(tmp_path, outputs=Printed({("digits", "launcher"): PRINTED.encode()})) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return Client(home=server.home)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a server that gives these answers, one a connection, and the requests that it got."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(65_536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        thread.join(10)


def an_answer(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def test_job_when_submitted_is_listed_changed_and_canceled(client: Client) -> None:
    job = client.submit(a_manifest("digits", workers=1, min_replicas=1, max_replicas=4)).job
    assert (job.job_id, job.phase, job.max_replicas, job.has_ended) == ("digits", "Submitted", 4, False)
    assert client.scale(job, max_replicas=2, priority=7).priority == 7
    assert client.get("digits").max_replicas == 2
    assert [one.job_id for one in client.list(phase="live", user=job.user)] == ["digits"]
    assert client.cancel(job, reason="wrong data").is_canceling
    assert list(client.list(phase=["Waiting", "Running"])) == []


def test_program_is_submitted_without_a_manifest(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch.distributed\n")
    options: dict[str, Any] = {"env": {"SEED": 7}, "time": "4h", "priority": 5, "epochs": 3, "labels": {"sweep": "lr"}}
    program = Program(["python", "train.py"], workers="1-4", **options)
    first, second = (client.submit(program).job for _ in range(2))
    assert (first.name, first.kind, first.min_replicas, first.max_replicas) == ("train", "PyTorchJob", 1, 4)
    assert (first.priority, first.progress.epochs, second.name) == (5, 3, "train-2")
    assert [job.labels for job in client.list(selector="sweep=lr")] == [{"sweep": "lr"}] * 2
    with pytest.raises(AlreadyExists):
        client.submit(Program(["python", "train.py"], name="train"))
    with pytest.raises(InvalidInput, match=r"nothing\.py: there is no such file here"):
        client.submit(Program(["python", "nothing.py"]))
    with pytest.raises(InvalidInput, match="a program is a list of words"):
        client.submit(Program("python train.py"))


def test_program_begins_in_the_folder_of_its_user(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client.submit(Program(["sleep", "1"]))
    client.submit(a_manifest("digits"))
    for position in (2, 3):
        (event,) = server.does(server.service.backend.journal.store.read(position - 1, 1))
        assert isinstance(event.data, JobSubmitted)
        manifest = event.data.spec.manifest or {}
        assert manifest["metadata"]["annotations"]["voda.dev/working-dir"] == str(tmp_path)


def test_job_is_halted_resumed_and_run_again(server: Server, client: Client) -> None:
    job = client.submit(a_manifest("digits")).job
    assert client.halt(job, reason="lunch").is_halted
    assert client.wait(job, for_="halted").is_halted
    assert not client.resume("digits").is_halted
    with pytest.raises(PermanentError):
        client.rerun(job)
    server.happens(JobCompleted(job_id="digits"))
    again = client.rerun(job).job
    assert (again.name, again.job_id != job.job_id) == ("digits", True)
    # What the client returned is meant itself; the name means the latest run.
    assert (client.get(job).job_id, client.get("digits").job_id) == (job.job_id, again.job_id)
    with pytest.raises(InvalidInput, match="expected ended, completed"):
        client.wait(again, for_="done")  # type: ignore[arg-type]


def test_manifest_may_be_text_or_a_file(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text((Path(__file__).parents[3] / "examples" / "digits-mpi" / "job.yaml").read_text())
    assert client.submit(file, dry_run=True).is_dry_run
    assert client.submit(file.read_text(), dry_run=True).job_id == "digits"
    assert client.submit(file.read_bytes(), dry_run=True).job_id == "digits"
    with pytest.raises(InvalidInput, match=r"nothing.yaml cannot be read: No such file"):
        client.submit(tmp_path / "nothing.yaml")
    with pytest.raises(InvalidInput, match="not what JSON can hold"):
        client.submit({"kind": object()})


def test_refusals_have_the_sentence_of_the_server(client: Client) -> None:
    with pytest.raises(NotFound, match="nobody"):
        client.get("nobody")
    with pytest.raises(InvalidField, match="kind") as refused:
        client.submit({**a_manifest(), "kind": "JAXJob"})
    assert refused.value.field == "kind"
    client.submit(a_manifest("digits"))
    with pytest.raises(AlreadyExists):
        client.submit(a_manifest("digits"))
    with pytest.raises(InvalidInput, match="which job"):
        client.get("")


def test_answer_when_lost_is_asked_for_again_and_the_job_submitted_once(server: Server) -> None:
    with server.behind_a_relay(loses=2) as relay:
        client = Client(home=server.home)
        assert client.submit(a_manifest("digits")).job.job_id == "digits"
        assert relay.lost == 2
    assert len(Client(home=server.home).list()) == 1


def test_wait_returns_the_job_that_is_where_it_should_be(server: Server, client: Client) -> None:
    job = client.submit(a_manifest("digits")).job
    with pytest.raises(WaitTimeout, match=r"job digits is submitted, not running within 0\.1 s"):
        client.wait(job, for_="running", timeout_s=0.1)
    threading.Timer(0.2, lambda: server.happens(WorkerStarted(job_id="digits", workers={0: "n1"}))).start()
    assert client.wait(job, for_="running", timeout_s=60).phase == "Running"
    threading.Timer(0.2, lambda: server.happens(JobCompleted(job_id="digits"))).start()
    assert client.wait(job, timeout_s=60).has_completed
    assert client.wait(job, for_="running").phase == "Completed"
    canceled = client.submit(a_manifest("other"))
    server.happens(JobCanceled(job_id="other"))
    with pytest.raises(WrongState, match=r"job other has ended \(canceled.*\): it will never be completed"):
        client.wait(canceled, for_="completed", timeout_s=60)


def a_job(phase: str, revision: int) -> bytes:
    shown = job_of(new_record(a_spec("digits", name="digits"), START, revision))
    return an_answer("200 OK", json.dumps({**msgspec.to_builtins(shown), "phase": phase}))


def an_event(position: int) -> bytes:
    body = f"retry: 2000\nid: {position - 1}\n\nid: {position}\nevent: job.completed\ndata: {{}}\n\n"
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}".encode()


def test_wait_looks_at_a_job_when_an_event_says_that_something_happened() -> None:
    with answering(a_job("Running", 7), an_event(9), a_job("Completed", 9)) as (server, requests):
        assert Client(server).wait("digits", timeout_s=60).phase == "Completed"
    paths = [request.split()[1].decode() for request in requests]
    assert paths[0::2] == ["/api/v1/jobs/digits", "/api/v1/jobs/%40digits"]
    assert paths[1].startswith("/api/v1/events?job=%40digits&type=")
    assert paths[1].endswith("&watch=true&after=7")


def test_wait_goes_on_behind_the_event_that_it_saw() -> None:
    # The second look is at a replica that is late.
    answers = [a_job("Running", 7), an_event(9), a_job("Running", 7), an_event(10), a_job("Completed", 10)]
    with answering(*answers) as (server, requests):
        Client(server).wait("digits", timeout_s=60)
    assert [request.split()[1].decode().rpartition("=")[2] for request in requests[1::2]] == ["7", "9"]


@pytest.mark.parametrize("status", ["429 Too Many Requests", "404 Not Found", "200 OK"])
def test_wait_polls_where_there_are_no_events(status: str) -> None:
    answers = [a_job("Running", 7), an_answer(status), a_job("Running", 7)]
    again = [an_answer(status)] if status == "200 OK" else []
    with answering(*answers, *again, a_job("Completed", 9)) as (server, requests):
        assert Client(server).wait("digits", timeout_s=60).phase == "Completed"
    assert [b"/events" in request for request in requests] == [False, True, False, *([True] if again else []), False]


def test_wait_of_a_job_without_events_ends_in_time(server: Server, client: Client) -> None:
    job = client.submit(a_manifest("digits")).job
    started_at = time.perf_counter()
    with pytest.raises(WaitTimeout):
        client.wait(job, timeout_s=0.3)
    assert time.perf_counter() - started_at < DEADLINE_S


@pytest.mark.parametrize(("tail", "lines"), [(None, PRINTED.split("\n")), (1, PRINTED.split("\n")[-1:]), (0, [])])
def test_logs_are_lines_of_text(client: Client, tail: int | None, lines: list[str]) -> None:
    job = client.submit(a_manifest("digits")).job
    assert list(client.logs(job, tail=tail)) == lines
    with pytest.raises(NotFound, match="worker-9"):
        list(client.logs(job, replica="worker-9"))


def test_logs_when_the_connection_is_cut_go_on_where_they_stopped(server: Server, client: Client) -> None:
    client.submit(a_manifest("digits"))
    server.happens(WorkerStarted(job_id="digits", workers={0: "n1"}), JobCompleted(job_id="digits"))
    with server.behind_a_relay() as relay:
        lines = Client(home=server.home).logs("digits", follow=True)
        seen = [next(lines)]
        server.loop.call_soon_threadsafe(relay.cut)
        assert seen + list(lines) == PRINTED.split("\n")


def test_events_when_the_connection_is_cut_go_on_where_they_stopped(server: Server) -> None:
    with server.behind_a_relay() as relay:
        client = Client(home=server.home)
        client.submit(a_manifest("digits"))
        events = client.events(job="digits", after=0)
        assert next(events).type == "job.submitted"
        server.loop.call_soon_threadsafe(relay.cut)
        server.happens(JobProgressed(job_id="digits", epochs_done=1, workers=1))
        found = next(events)
        assert (found.type, found.data["epochs_done"]) == ("job.progressed", 1)
        events.close()


def test_settings_are_read_and_changed(client: Client) -> None:
    assert client.settings().policy == client.settings("default").policy
    assert client.change_settings(ratelimit_s=7).ratelimit_s == 7
    with pytest.raises(InvalidField):
        client.change_settings(policy="nothing")
    with pytest.raises(NotFound):
        client.settings("nowhere")


def test_caller_is_told_by_the_server(client: Client) -> None:
    assert client.whoami().role == "admin"


def test_server_when_busy_is_asked_again_after_the_time_that_it_names() -> None:
    busy = an_answer("503 Service Unavailable", '{"title":"No","detail":"not now"}', "Retry-After: 1")
    caller = an_answer("200 OK", '{"user":"ada","role":"user","new":1}')
    with answering(busy, caller) as (url, requests):
        began = time.perf_counter()
        assert Client(url, "t").whoami().user == "ada"
        assert time.perf_counter() - began >= 1
        assert len(requests) == 2
        assert b"Authorization: Bearer t\r\n" in requests[0]
    with answering(busy.replace(b"Retry-After: 1", b"Retry-After: 9")) as (url, _), pytest.raises(RetryLater) as error:
        Client(url, "t", retry_s=3).whoami()
    assert error.value.retry_after_s == 9


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (an_answer("302 Found", "", "Location: http://127.0.0.1:1/"), PermanentError, "a redirect"),
        (an_answer("200 OK", "[]"), PermanentError, "does not understand the server's answer"),
        (an_answer("200 OK", '{"user":1,"role":""}'), PermanentError, r"Expected `str`, got `int` - at `\$\.user`"),
        (an_answer("200 OK", "x")[:-1], ServerUnreachable, "the connection was lost"),
        (b"SSH-2.0\r\n", ServerUnreachable, "the connection was lost"),
        (b"", ServerUnreachable, "the connection was lost"),
    ],
)
def test_answer_when_it_is_none_of_vodas_is_told(answer: bytes, kind: type[Exception], words: str) -> None:
    with answering(answer) as (url, _), pytest.raises(kind, match=words):
        Client(url, "t", retry_s=0).whoami()


def test_answer_when_it_drips_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    while True:
                        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                        time.sleep(0.05)
                except OSError:
                    pass

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(ServerUnreachable, match="does not answer in time"):
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", timeout_s=0.5, retry_s=0).whoami()


def test_token_when_http_cannot_carry_it_is_not_shown() -> None:
    with answering(b"") as (url, _), pytest.raises(PermanentError) as refused:
        Client(url, "se\ncret", retry_s=0).whoami()
    assert "cannot carry" in str(refused.value)
    assert "cret" not in str(refused.value)


def test_client_when_closed_ends_what_it_does(client: Client) -> None:
    has_begun, is_closed = threading.Event(), threading.Event()

    def follow() -> None:
        try:
            for _ in client.events(after=0):
                has_begun.set()
        except ClientClosed:
            is_closed.set()

    threading.Thread(target=follow).start()
    assert has_begun.wait(DEADLINE_S)
    client.close()
    assert is_closed.wait(DEADLINE_S)
    with pytest.raises(ClientClosed):
        client.get("digits")


async def test_async_client_lets_the_loop_go_on(server: Server) -> None:
    client = AsyncClient(home=server.home)
    job = (await client.submit(a_manifest("digits"))).job
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async with asyncio.TaskGroup() as group:
        turning = group.create_task(turn())
        with pytest.raises(WaitTimeout):
            await client.wait(job, timeout_s=0.5)
        turning.cancel()
    assert turns > 5
    assert (await client.get("digits")) == (await client.list(limit=0))[0]
    assert [line async for line in client.logs(job)] == PRINTED.split("\n")


async def test_async_call_when_canceled_closes_its_connection(server: Server) -> None:
    client = AsyncClient(home=server.home)
    async with aclosing(client.events(after=0)) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        # It has begun, and nothing more happens.
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await until(lambda: all(thread.name != "voda-client" for thread in threading.enumerate()))


async def test_async_call_when_canceled_while_it_waits_ends_its_thread(server: Server) -> None:
    client = AsyncClient(home=server.home)
    await client.submit(a_manifest("digits"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.wait("digits")
    await until(lambda: all(thread.name != "voda-client" for thread in threading.enumerate()))


def test_jobs_in_a_notebook_are_a_table(client: Client) -> None:
    client.submit(a_manifest("digits"))
    html = client.list()._repr_html_()
    assert "<td>digits</td>" in html
    assert html.count("<tr>") == 2
    assert client.get("digits")._repr_html_() == html
