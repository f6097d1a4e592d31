"""What others can write is opened by one module, and what lies there costs it neither time nor memory."""

import ast
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.file_leases import a_lease
from voda.untrusted_files import UnsafeFile, UntrustedFolder

ROOT = Path(__file__).resolve().parents[2] / "voda"
READERS = (
    *sorted((ROOT / "cluster/local").rglob("*.py")),
    *(ROOT / "reconcilers/progress.py", ROOT / "process_table.py"),
)
"""Modules that read or write what a job can write, or what /proc shows of a job."""
OPENERS = frozenset(
    {"open", "write_whole", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob", "walk"}
    | {"scandir", "listdir", "exists", "is_file", "is_dir", "stat", "lstat", "touch", "mkdir", "makedirs", "rename"}
    | {"unlink", "rmdir", "rmtree", "symlink_to", "readlink"}
)
ALLOWED = {
    ("cluster.py", "mkdir"): "the folder of all jobs, which voda makes",
    ("user_folders.py", "open"): "folders that only voda can name, without following a link; a user's, once",
    ("user_folders.py", "mkdir"): "in folders that only voda can write",
    ("user_folders.py", "listdir"): "of a folder that is voda's own still",
    ("user_folders.py", "lstat"): "of a name in a folder that only voda can write",
    ("replica.py", "open"): "of a file of voda itself",
    ("replica.py", "stat"): "as above",
    ("shim.py", "open"): "stands alone: files of its folder by open_regular and open_new, and /proc",
    ("shim.py", "unlink"): "stands alone: a link is removed, not followed",
    ("shim.py", "rename"): "stands alone: goes through no link",
    ("shim.py", "listdir"): "stands alone: of /proc",
    ("shim.py", "rmdir"): "a control group, which no job can write",
    ("mps.py", "stat"): "whose a folder is, without following a link",
    ("cgroups.py", "open"): "the kernel's control groups, which no job can write",
    ("cgroups.py", "mkdir"): "as above",
    ("cgroups.py", "is_dir"): "as above",
    ("cgroups.py", "read_text"): "/proc/self and control groups",
    ("cgroups.py", "glob"): "of /dev",
    ("cgroups.py", "rmdir"): "as above",
    ("session.py", "open"): "/dev/null",
    ("process_table.py", "open"): "of /proc: by a function that reads within a bound, and tables of the kernel's own",
    ("process_table.py", "listdir"): "of /proc",
    ("process_table.py", "scandir"): "of /proc/PID/fd",
    ("process_table.py", "readlink"): "as above, which follows nothing",
    ("process_table.py", "stat"): "of /proc/PID",
    ("rsh_agent.py", "open"): "runs as the job itself",
    ("rsh_agent.py", "listdir"): "runs as the job itself",
    ("rsh_agent.py", "exists"): "runs as the job itself",
}


def _calls(tree: ast.AST) -> Iterator[str]:
    """Yield the names by which files are opened; `self._files.open` and the like are not among them."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in OPENERS:
                yield name
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in OPENERS and not _is_safe(owner):
                yield name


def _is_safe(owner: ast.expr) -> bool:
    return ast.unparse(owner).endswith(("files", "_folder")) or ast.unparse(owner) in ("self", "cluster")


@pytest.mark.parametrize("module", READERS, ids=lambda path: path.name)
def test_modules_that_read_what_a_job_can_write_when_read_open_it_by_one_module(module: Path) -> None:
    used = set(_calls(ast.parse(module.read_text("utf-8"))))
    assert used == {name for file, name in ALLOWED if file == module.name}


def test_shim_when_it_opens_a_file_by_its_name_does_so_in_two_functions() -> None:
    tree = ast.parse((ROOT / "cluster/local/processes/shim.py").read_text("utf-8"))
    openers = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "os.open"
    }
    # The folder itself, to flush it, is opened as one; beside it, /dev/null.
    assert openers == {"open_regular", "open_new", "write_exit", "program_to_start"}


@pytest.fixture
def folder(tmp_path: Path) -> UntrustedFolder:
    (tmp_path / "job/logs").mkdir(parents=True)
    return UntrustedFolder(tmp_path, "job", uid=os.geteuid())


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "is a FIFO"),
    "socket": (_socket, "is a socket"),
    "folder": (os.mkdir, "is a folder"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    "link": (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link"),
    "loop": (lambda path: path.symlink_to(path.name), "is a symbolic link"),
    "sparse": (_sparse, "holds more than 1048576 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_file_that_is_not_what_is_expected_when_read_is_refused(
    folder: UntrustedFolder, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "job/logs")  # the path of a socket is short
    make, reason = HOSTILE[kind]
    make(Path("a.log"))
    with pytest.raises(UnsafeFile, match=f"logs/a.log {reason}"):
        folder.read("logs/a.log")


def test_file_that_a_process_keeps_a_lease_on_when_opened_is_refused(folder: UntrustedFolder, tmp_path: Path) -> None:
    with a_lease(tmp_path / "job/logs/a.log"), pytest.raises(UnsafeFile, match=r"logs/a\.log cannot be used"):
        folder.read("logs/a.log")


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "folder"])
@pytest.mark.parametrize("name", ["a.log", "a.log.PID.new"])
def test_file_when_written_replaces_what_lies_there_and_goes_through_no_link(
    folder: UntrustedFolder, tmp_path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "job/logs")
    HOSTILE[kind][0](Path(name.replace("PID", str(os.getpid()))))
    before = Path("/etc/passwd").read_bytes()
    folder.write("logs/a.log", b"written", mode=0o755)
    assert folder.read("logs/a.log") == b"written"
    assert os.listdir() == ["a.log"]
    assert Path("/etc/passwd").read_bytes() == before


def test_folder_that_is_a_link_when_on_the_way_is_refused(folder: UntrustedFolder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.log").write_text("theirs")
    (tmp_path / "job/logs").rmdir()
    (tmp_path / "job/logs").symlink_to(tmp_path / "other")
    with pytest.raises(UnsafeFile, match="logs is a symbolic link, expected a folder"):
        folder.read("logs/a.log")
    with pytest.raises(UnsafeFile, match="logs is a symbolic link, expected a folder"):
        folder.write("logs/a.log", b"ours")
    with pytest.raises(UnsafeFile, match="logs is a symbolic link, expected a folder"):
        folder.make("logs/deeper")
    assert folder.list_names("logs", most=9) == []
    assert (tmp_path / "other/a.log").read_text() == "theirs"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../a", "a/../../b", "a//b", ".", "a\0b"])
def test_path_that_leads_out_when_used_is_refused(folder: UntrustedFolder, path: str) -> None:
    with pytest.raises(UnsafeFile, match="leads out of its folder"):
        folder.read(path)


def test_file_of_another_when_opened_is_refused(folder: UntrustedFolder, tmp_path: Path) -> None:
    (tmp_path / "job/a").write_text("mine")
    others = UntrustedFolder(tmp_path, "job", uid=os.geteuid() + 1)
    with pytest.raises(UnsafeFile, match=f"a belongs to uid {os.geteuid()}, expected {os.geteuid() + 1}"):
        others.read("a")
    assert UntrustedFolder(tmp_path, "job", uid=None).read("a") == b"mine"


def test_folder_that_is_gone_when_read_is_empty_and_when_written_says_so(tmp_path: Path) -> None:
    folder = UntrustedFolder(tmp_path, "gone", uid=None)
    with pytest.raises(FileNotFoundError):
        folder.read("a")
    with pytest.raises(UnsafeFile, match="the folder gone is gone"):
        folder.write("a", b"")
    folder.remove("a")
    folder.rename("a", "b")
    assert not folder.exists("a")
    folder.make("deeper")
    folder.write("deeper/a", b"a", durably=True)
    assert folder.read("deeper/a") == b"a"


def test_names_when_there_are_many_are_as_many_as_are_looked_at(folder: UntrustedFolder, tmp_path: Path) -> None:
    for index in range(50):
        (tmp_path / "job/logs" / f"{index}").touch()
    assert len(folder.list_names("logs", most=20)) == 20
    assert folder.list_names("logs", most=99, wanted=lambda name: name == "7") == ["7"]


def test_file_when_it_cannot_be_written_leaves_no_draft(folder: UntrustedFolder, tmp_path: Path) -> None:
    (tmp_path / "job/logs/a.log").mkdir()
    with pytest.raises(UnsafeFile, match="a folder"):
        folder.write("logs/a.log", b"written")
    assert os.listdir(tmp_path / "job/logs") == ["a.log"]
