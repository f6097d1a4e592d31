"""An admin who names a job of somebody else: asked first, or refused where nobody can answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from tests.builders import a_spec
from tests.served import Printed, Server, served
from tests.service import START, a_manifest
from voda.auth.tokens import Authenticator
from voda.cli import build_app
from voda.cli.http import confirmation
from voda.clock import VirtualClock
from voda.domain.errors import InvalidInput, NotAllowed, NotFound
from voda.events.types import JobCanceled, JobCompleted, JobSubmitted


class Users:
    """A server with two users' jobs called train, and the admin's command line."""

    def __init__(self, server: Server, access: Authenticator) -> None:
        self.server = server
        self._access = access
        self._tokens: dict[str, str] = {}

    def submit(self, user: str, name: str, **annotations: Any) -> None:
        if user not in self._tokens:
            self._tokens[user] = self._access.add(user, "user")
        token = self._tokens[user]
        body = a_manifest(name, **annotations)
        answer = self.server.does(self.server.service.ask("POST", "/api/v1/jobs", token=token, body=body))
        assert answer.status == 201, answer.body


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    access = Authenticator.open(tmp_path, VirtualClock(START))
    with served(tmp_path, access=access, outputs=PRINTED) as server:
        yield Users(server, access)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let somebody be at the terminal."""
    monkeypatch.setattr(confirmation, "is_answered", lambda: True)


PRINTED = Printed({(name, "launcher"): b"epoch 1\n" for name in ("train", "train-2", "train-3", "train-4")})
CHANGES = (
    ("delete", "train"),
    ("halt", "train"),
    ("resume", "train"),
    ("rerun", "train"),
    ("scale", "train", "--max", "4"),
)
READS = {"describe", "status", "logs", "metrics", "wait"}


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: command[0])
def test_bare_name_of_another_users_job_is_refused_in_a_pipe(users: Users, command: tuple[str, ...]) -> None:
    users.submit("anna", "train")
    with pytest.raises(InvalidInput) as refused:
        users.server.voda(*command)
    assert str(refused.value) == (
        f"job train is anna's, and you have none of that name: to {command[0]} it, name it anna/train or @train,"
        " or give --yes"
    )
    assert "Canceling" not in users.server.voda("get", "train").stdout


def test_bare_name_of_another_users_job_has_no_command_run_beside_it_in_a_pipe(users: Users) -> None:
    users.submit("anna", "train")
    refused = users.server.voda("exec", "train", "--", "true", exit_code=125)
    assert "job train is anna's, and you have none of that name: to run commands beside it, name it" in refused.stderr
    # Here no cluster runs commands, which the server says.
    for words in (("train", "--yes"), ("anna/train",), ("@train",)):
        answer = users.server.voda("exec", *words, "--", "true", exit_code=125)
        assert "voda runs no commands on the cluster" in answer.stderr


def test_all_commands_that_change_a_job_are_among_those_that_ask() -> None:
    app = build_app()
    context = click.Context(app)
    commands = [app.get_command(context, name) for name in app.list_commands(context)]
    named = {
        command.name
        for command in commands
        if command is not None
        and any(isinstance(each, click.Argument) and each.name in ("job", "jobs") for each in command.params)
    }
    assert named - {command[0] for command in CHANGES} - {"cancel", "exec"} == READS


@pytest.mark.parametrize("named", ["anna/train", "@train"])
def test_exact_name_of_another_users_job_is_not_asked_about(users: Users, named: str) -> None:
    users.submit("anna", "train")
    assert users.server.voda("halt", named).stdout == "train is halted\n"
    assert users.server.voda("delete", named).stdout == "train is being canceled\n"


def test_bare_name_with_yes_is_not_asked_about(users: Users) -> None:
    users.submit("anna", "train")
    assert users.server.voda("scale", "train", "--priority", "3", "--yes").stdout == "train: priority 0 -> 3\n"
    assert users.server.voda("delete", "train", "-y").stdout == "train is being canceled\n"


@pytest.mark.usefixtures("terminal")
def test_bare_name_of_another_users_job_is_asked_about_at_a_terminal(users: Users) -> None:
    users.submit("anna", "train")
    with pytest.raises(NotAllowed, match="job train stays as it is"):
        users.server.voda("halt", "train", input="n\n")
    asked = users.server.voda("halt", "train", input="y\n")
    assert "job train is anna's. Halt it? [y/N]" in asked.stderr
    assert "train is halted" in asked.stdout


def test_own_job_goes_first_and_is_not_asked_about(users: Users) -> None:
    users.submit("anna", "train")
    users.server.voda("delete", "anna/train")
    users.server.does(users.server.service.happens(JobCanceled(job_id="train")))
    manifest = msgspec.json.encode(a_manifest("train"))
    assert "train-2 submitted" in users.server.voda("submit", "-", input=manifest).stdout
    users.submit("bob", "other")
    assert users.server.voda("delete", "train").stdout == "train-2 is being canceled\n"


def test_array_of_another_user_is_refused_in_a_pipe(users: Users) -> None:
    users.submit("anna", "sweep", array="0-2")
    with pytest.raises(InvalidInput, match=r"name it anna/sweep or @sweep-0, or give --yes"):
        users.server.voda("delete", "sweep")
    assert "3 tasks being canceled" in users.server.voda("delete", "anna/sweep").stdout


def test_where_the_server_asks_nobody_who_they_are_nothing_is_asked(empty: Server) -> None:
    empty.happens(JobSubmitted(spec=a_spec("train", user="anna")))
    assert empty.voda("delete", "train").stdout == "train is being canceled\n"


def test_events_to_a_past_moment_are_those_of_the_run_that_the_name_meant_then(users: Users) -> None:
    users.submit("anna", "train")
    ended = users.server.does(users.server.service.happens(JobCompleted(job_id="train")))
    users.submit("anna", "train")
    then = users.server.voda("events", "train", "--to", str(ended)).stdout.splitlines()
    assert [line.split(": ")[0].split()[-1] for line in then] == ["train", "train"]
    assert "submitted" in then[0]
    now = users.server.voda("events", "train").stdout
    assert "train-2: submitted" in now
    with pytest.raises(NotFound):
        users.server.voda("events", "nobody", "--to", str(ended))


def test_submit_after_another_users_job_names_its_owner(users: Users) -> None:
    users.submit("anna", "prep")
    program = ("--name", "train", "--after", "anna/prep", "--", "true")
    assert ", after anna/prep" in users.server.voda("submit", *program).stdout
    assert "anna/prep" in users.server.voda("describe", "train").stdout


def test_bare_name_of_another_users_job_is_noted_with_the_callers_own_where_it_is_shown(users: Users) -> None:
    users.submit("anna", "train")
    for command in ("logs", "describe", "explain"):
        assert "voda: train is anna's; you have no job of that name" in users.server.voda(command, "train").stderr
        for exact in ("anna/train", "@train"):
            assert "anna's" not in users.server.voda(command, exact).stderr
    users.submit("bob", "train-2")
    users.server.happens(JobCanceled(job_id="train"))
    users.server.voda("submit", "-", input=msgspec.json.encode(a_manifest("train-3")))
    assert "voda: train is anna's; yours: train-3" in users.server.voda("logs", "train").stderr
    users.server.voda("submit", "-", input=msgspec.json.encode(a_manifest("train")))
    assert "anna" not in users.server.voda("logs", "train").stderr
