"""Folders that others filled are measured and deleted, whatever lies in them, and nothing beside them is touched."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.needs import needs
from voda.untrusted_trees import RemovalStep, TreeSize, measure_tree, remove_step

MOST = 1_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "job").mkdir(parents=True)
    return tmp_path / "root"


def removed(root: Path, *, most: int = 50, steps: int = 100_000, owner: int | None = None) -> RemovalStep:
    """Take steps until the folder is gone or a step does nothing."""
    for _ in range(steps):
        step = remove_step(root, "job", most=most, owner=owner)
        if step.is_gone or not step.removed:
            return step
    raise AssertionError("it takes more steps than that")


def test_tree_when_measured_counts_blocks_not_lengths(root: Path) -> None:
    with (root / "job" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (root / "job" / "plain").write_bytes(b"x" * 100_000)
    size = measure_tree(root, "job", most=MOST)
    assert (size.files, size.is_complete) == (2, True)
    assert 100_000 <= size.size_bytes < 200_000


def test_tree_when_files_have_several_names_counts_what_deleting_frees(root: Path) -> None:
    inside, outside = root / "job" / "a", root / "outside"
    inside.write_bytes(b"x" * 1_000_000)
    outside.write_bytes(b"x" * 1_000_000)
    os.link(inside, root / "job" / "b")
    os.link(outside, root / "job" / "c")
    assert 1_000_000 <= measure_tree(root, "job", most=MOST).size_bytes < 1_100_000
    assert removed(root).is_gone
    assert outside.stat().st_size == 1_000_000


def test_tree_when_it_has_more_entries_than_looked_at_says_so(root: Path) -> None:
    for number in range(20):
        (root / "job" / str(number)).touch()
    assert measure_tree(root, "job", most=10) == TreeSize(
        size_bytes=(root / "job").stat().st_blocks * 512, files=10, is_complete=False, exceeds=True
    )


def test_tree_when_it_is_gone_is_empty_and_gone(root: Path) -> None:
    (root / "job").rmdir()
    assert measure_tree(root, "job", most=MOST) == TreeSize()
    assert remove_step(root, "job", most=1).is_gone


def test_tree_when_links_lead_out_of_it_leaves_what_they_lead_to(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (root / "job" / "link").symlink_to(precious)
    (root / "job" / "sub").mkdir()
    (root / "job" / "sub" / "up").symlink_to("../../..")
    os.mkfifo(root / "job" / "fifo")
    assert measure_tree(root, "job", most=MOST).files == 3
    assert removed(root).is_gone
    assert (precious / "file").read_text() == "mine"


def test_tree_when_a_link_lies_in_its_place_removes_the_link_alone(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (root / "job").rmdir()
    (root / "job").symlink_to(tmp_path / "precious")
    assert not measure_tree(root, "job", most=MOST).is_complete
    assert removed(root).is_gone
    assert (tmp_path / "precious").is_dir()


def test_tree_when_nested_beyond_the_longest_path_is_measured_and_removed(root: Path) -> None:
    depth, handle = 200, os.open(root / "job", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 50, dir_fd=handle)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)
    open_files = len(os.listdir("/proc/self/fd"))
    assert measure_tree(root, "job", most=MOST).files == 1
    assert removed(root).is_gone
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_tree_when_folders_have_no_rights_is_removed_also_by_a_user() -> None:
    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    # Not below tmp_path, which another user may not enter.
    root = Path(tempfile.mkdtemp())
    try:
        (root / "job" / "a" / "b" / "c").mkdir(parents=True)
        (root / "job" / "a" / "file").touch()
        for folder in (root, root / "job", *(root / "job").rglob("*")):
            os.chown(folder, uid, -1)
        for name in ("a/b/c", "a/b", "a", ""):
            (root / "job" / name).chmod(0)
        assert _succeeds_as(uid, lambda: removed(root).is_gone)
        assert not (root / "job").exists()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _writes(path: Path) -> bool:
    path.touch()
    return True


def _succeeds_as(uid: int, act: Callable[[], bool]) -> bool:
    """Return what a function returns in a child process of another uid; False where it raises."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.setuid(uid)
            os._exit(0 if act() else 1)
        os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@needs(os.geteuid() == 0, "only root can delete what is others'")
@pytest.mark.parametrize("owner", [None, 65534])
def test_tree_of_a_user_when_a_third_users_folder_was_moved_into_it_leaves_that(root: Path, owner: int | None) -> None:
    for name in ("own/deep/file", "own/bobs/file", "bobs/file"):
        (root / "job" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "job" / name).write_text("x")
    for path in (root / "job", *(root / "job").rglob("*")):
        os.chown(path, 65533 if "bobs" in str(path) else 65534, -1)
    step = removed(root, owner=owner)
    assert "another user's" in step.problem
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == ["job", "job/bobs", "job/bobs/file", "job/own", "job/own/bobs", "job/own/bobs/file"]


@needs(os.geteuid() == 0, "only root can take over what is others'")
def test_tree_of_a_user_once_it_is_being_deleted_cannot_be_filled_by_its_user() -> None:
    # Not below tmp_path, which another user may not enter.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "job" / "sub").mkdir(parents=True)
        (root / "elsewhere").mkdir()
        (root / "link").symlink_to("elsewhere")
        for number in range(4):
            (root / "job" / str(number)).touch()
        for path in (root / "job", root / "job" / "sub", root / "elsewhere"):
            os.chown(path, 65534, -1)
            path.chmod(0o777)
        assert _succeeds_as(65534, partial(_writes, root / "job" / "sub" / "before"))
        assert not remove_step(root, "job", most=1, owner=65534).is_gone
        status = (root / "job").stat()
        assert (status.st_uid, status.st_mode & 0o777) == (0, 0o700)
        for path in (root / "job" / "after", root / "job" / "sub" / "after"):
            assert not _succeeds_as(65534, partial(_writes, path))
        assert removed(root, owner=65534).is_gone
        # A link in its place is deleted, not followed.
        assert remove_step(root, "link", most=1, owner=65534).is_gone
        assert (root / "elsewhere").stat().st_uid == 65534


def test_tree_when_something_writes_into_it_meanwhile_takes_bounded_steps(root: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                (root / "job" / "sub").mkdir(parents=True, exist_ok=True)
                (root / "job" / "sub" / str(number)).touch()
            except OSError:
                continue

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert remove_step(root, "job", most=20).removed <= 22
    finally:
        stop.set()
        writer.join()
    assert removed(root).is_gone


_IN_A_MOUNT = """
import sys
from pathlib import Path
from voda.untrusted_trees import measure_tree, remove_step

root = Path(sys.argv[1])
assert measure_tree(root, "job", most=1000).size_bytes < 100_000
for _ in range(50):
    step = remove_step(root, "job", most=10)
    if not step.removed:
        break
assert not step.is_gone, step
print(step.problem)
"""


def test_tree_when_something_is_mounted_in_it_stops_at_the_mount(root: Path, tmp_path: Path) -> None:
    # In a mount namespace of its own; a bind mount has the device of the folder that it hides.
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_bytes(b"x" * 500_000)
    (root / "job" / "deep" / "mount").mkdir(parents=True)
    (root / "job" / "file").touch()
    program = tmp_path / "program.py"
    program.write_text(_IN_A_MOUNT)
    bind = f"mount --bind {tmp_path / 'home'} {root / 'job/deep/mount'}"
    shell = f"{bind} && exec {sys.executable} {program} {root}"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", shell],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        # Nothing can be mounted here: then nothing can be mounted by a job either.
        return
    assert done.returncode == 0, done.stderr
    assert "mounted" in done.stdout
    assert (tmp_path / "home" / "precious").exists()
    assert removed(root).is_gone


def test_tree_when_a_file_cannot_be_deleted_removes_the_rest_and_says_so(root: Path) -> None:
    (root / "job" / "sub").mkdir()
    for name in ("stays", "goes", "sub/goes"):
        (root / "job" / name).touch()
    if subprocess.run(["chattr", "+i", root / "job" / "stays"], capture_output=True, timeout=10).returncode:
        # No file is immutable on this file system.
        return
    try:
        step = removed(root)
        assert "stays" in step.problem
        assert os.listdir(root / "job") == ["stays"]
    finally:
        subprocess.run(["chattr", "-i", root / "job" / "stays"], check=True, timeout=10)


_TREES = st.recursive(st.none(), lambda below: st.dictionaries(st.sampled_from("abcde.0"), below, max_size=5))


@settings(max_examples=25, deadline=None)
@given(tree=_TREES, most=st.integers(1, 7))
def test_tree_when_drawn_is_removed_in_steps_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, tree: object, most: int
) -> None:
    root = tmp_path_factory.mktemp("drawn")
    try:
        (root / "job").mkdir()
        files = sum(_make(root / "job", tree))
        assert measure_tree(root, "job", most=MOST).files == files
        assert removed(root, most=most).is_gone
        assert os.listdir(root) == []
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make(folder: Path, tree: object) -> Iterator[int]:
    for name, below in (tree or {}).items():  # type: ignore[attr-defined]
        if below is None:
            (folder / (name + "_" if name == "." else name)).touch()
            yield 1
        else:
            (folder / f"_{name}").mkdir()
            yield from _make(folder / f"_{name}", below)
