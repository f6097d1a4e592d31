"""How `voda serve` begins, and how it says that it cannot."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

COMMAND = [sys.executable, "-c", "import voda.cli; voda.cli.main()", "serve"]
WAIT_S = 240.0
# Nobody listens at port 1.
NOBODY = "https://127.0.0.1:1"


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without any cluster in it."""
    root = str(Path(__file__).resolve().parents[3])
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": root, "COLUMNS": "200"}  # noqa: TID251


def serve(folder: Path, *options: str) -> tuple[int, str]:
    """Run a `voda serve` that cannot begin, and return its exit status and what it said."""
    done = subprocess.run(
        [*COMMAND, "--home", str(folder / "home"), *options],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Path]:
    """Run a `voda serve` for the length of the block, and yield the file of what it says."""
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "--home", str(folder / "home"), "--host", "127.0.0.1", "--port", "0", *options],
            cwd=folder,
            env=environment(folder),
            stdout=output,
            stderr=output,
        )
    try:
        yield said
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()


def until_it_says(said: Path, text: str) -> str:
    """Wait until it said something, and return all it said."""
    deadline = time.perf_counter() + WAIT_S
    while text not in said.read_text():
        assert time.perf_counter() < deadline, f"no {text!r} in {said.read_text()}"
        time.sleep(0.02)
    return said.read_text()


def a_kubeconfig(folder: Path, server: str = NOBODY) -> str:
    """Write a kubeconfig, and return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return str(folder / "kubeconfig")


def settings(folder: Path, text: str) -> str:
    """Write a settings file, and return its path."""
    (folder / "voda.yaml").write_text(text)
    return str(folder / "voda.yaml")


def refused(folder: Path, *options: str) -> str:
    """Return the one sentence with which it is refused."""
    status, said = serve(folder, *options)
    assert status == 2, said
    assert said.count("\n") == 1, said
    assert said.startswith("voda: ")
    return said


def test_serve_when_there_is_no_cluster_says_how_to_name_one(tmp_path: Path) -> None:
    assert "name a kubeconfig (--kubeconfig or KUBECONFIG), or run voda in the cluster" in refused(tmp_path)
    assert "there is no kubeconfig nowhere" in refused(tmp_path, "--kubeconfig", "nowhere")


def test_serve_when_it_is_given_a_cluster_as_once_says_what_serves_this_machine(tmp_path: Path) -> None:
    status, said = serve(tmp_path, "--cluster", "machine")
    assert status == 2
    assert "There is no 'serve --cluster' any more: " in said
    assert "for this machine run `voda up`" in said


def test_serve_when_its_settings_cannot_be_meant_says_which(tmp_path: Path) -> None:
    file = settings(tmp_path, "pools: {a100: {policy: lifo}}")
    assert f"settings file {file}: pools.a100.policy: policy 'lifo' is not known" in refused(tmp_path, "--config", file)
    assert "listen.port is 70000" in refused(tmp_path, "--port", "70000")


def test_serve_when_anybody_could_reach_it_without_tokens_is_refused(tmp_path: Path) -> None:
    assert "--no-tokens lets whoever reaches 0.0.0.0 do anything" in refused(tmp_path, "--no-tokens")


def test_serve_when_its_tokens_are_not_mounted_says_how_to_make_them(tmp_path: Path) -> None:
    file = settings(tmp_path, "access: {folder: /nowhere}")
    said = refused(tmp_path, "--config", file, "--kubeconfig", a_kubeconfig(tmp_path))
    assert "voda token create" in said


def test_serve_when_its_database_is_not_migrated_says_how(tmp_path: Path, postgres_database: str) -> None:
    said = refused(tmp_path, "--log", postgres_database, "--kubeconfig", a_kubeconfig(tmp_path))
    assert "voda log migrate" in said


def test_serve_when_its_database_does_not_answer_may_be_tried_again(tmp_path: Path) -> None:
    status, said = serve(tmp_path, "--log", "postgresql://voda@127.0.0.1:1/voda")
    assert (status, said.count("\n")) == (75, 1)
    assert "does not answer" in said


@pytest.mark.slow
def test_serve_when_another_has_its_folder_or_its_port_says_so(tmp_path: Path) -> None:
    kubeconfig = a_kubeconfig(tmp_path)
    with serving(tmp_path, "--kubeconfig", kubeconfig) as said:
        line = until_it_says(said, "Ctrl-C").partition("\n")[0]
        assert "works on" in refused(tmp_path, "--kubeconfig", kubeconfig)
        port = line.rpartition(":")[2]
        (tmp_path / "other").mkdir()
        taken = refused(tmp_path / "other", "--kubeconfig", kubeconfig, "--host", "127.0.0.1", "--port", port)
        assert f"port {port}: " in taken
        assert ") listens there; stop it" in taken


def test_serve_when_the_api_server_is_away_serves_says_why_and_waits_for_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--kubeconfig", a_kubeconfig(tmp_path)) as said:
        text = until_it_says(said, "cannot ask which jobs are served")
        url = text.partition("serves ")[2].partition("\n")[0]
        asked = subprocess.run(["curl", "-s", f"{url}/readyz"], capture_output=True, text=True, check=True)
        assert "the API server does not answer" in asked.stdout
    # Once, though it is asked every second.
    assert said.read_text().count("cannot ask which jobs are served") == 1


def test_serve_when_it_begins_says_where_everything_is(tmp_path: Path) -> None:
    with serving(tmp_path, "--kubeconfig", a_kubeconfig(tmp_path)) as said:
        text = until_it_says(said, "Ctrl-C")
    home = tmp_path / "home"
    assert f"cluster {NOBODY}\n" in text
    assert f"log {home / 'voda.db'}\n" in text
    assert "lease default/voda, as " in text
    assert f"token {home / 'admin.token'}\n" in text
    assert "handing over; jobs train on" in said.read_text()
