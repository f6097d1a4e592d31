"""The code of a program is kept once per content, within bounds, whatever lies beside it."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from voda.programs import kept_code
from voda.programs.kept_code import NotKept, clear, keep
from voda.programs.program_manifest import ProgramJob


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a script in a folder, a package beside it, and data that git does not track."""
    top = tmp_path / "repo"
    (top / "jobs" / "nets").mkdir(parents=True)
    (top / "jobs" / "train.py").write_text("import nets\n")
    (top / "jobs" / "nets" / "__init__.py").write_text("SIZE = 1\n")
    (top / "README").write_text("read\n")
    git(top, "init", "-q")
    git(top, "add", "-A")
    (top / "jobs" / "new.py").write_text("")
    (top / "jobs" / "data.bin").write_bytes(b"x" * 100)
    return top / "jobs"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def store_of(tmp_path: Path) -> Path:
    return tmp_path / "home" / "code"


def test_script_is_kept_with_what_git_tracks_and_will_and_a_link_to_all_else(folder: Path, tmp_path: Path) -> None:
    kept = keep(folder / "train.py", store_of(tmp_path))
    (folder / "train.py").write_text("changed\n")
    assert kept.read_text() == "import nets\n"
    assert (kept.parent / "nets" / "__init__.py").read_text() == "SIZE = 1\n"
    assert (kept.parents[1] / "README").is_file()
    assert not (kept.parents[1] / "README").is_symlink()
    assert not (kept.parent / "new.py").is_symlink()
    assert (kept.parent / "data.bin").readlink() == folder / "data.bin"
    assert store_of(tmp_path).stat().st_mode & 0o077 == 0


def test_same_content_is_kept_once_and_another_beside_it(folder: Path, tmp_path: Path) -> None:
    store = store_of(tmp_path)
    first = keep(folder / "train.py", store)
    (folder / "out.txt").write_text("a result")
    assert keep(folder / "train.py", store) == first
    assert (first.parent / "out.txt").read_text() == "a result"
    (folder / "nets" / "__init__.py").write_text("SIZE = 2\n")
    second = keep(folder / "train.py", store)
    assert second != first
    assert sorted(store.iterdir()) == sorted({first.parents[1], second.parents[1]})


def test_script_without_git_is_kept_with_the_python_files_and_packages_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "pack").mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("train.py", "net.py", "pack/__init__.py", "data/not.py"):
        (folder / name).write_text(name)
    kept = keep(folder / "train.py", store_of(tmp_path)).parent
    assert not (kept / "net.py").is_symlink()
    assert not (kept / "pack").is_symlink()
    assert (kept / "data").is_symlink()


def test_large_file_is_linked_to_and_a_large_script_is_not_kept(folder: Path, tmp_path: Path) -> None:
    with (folder / "weights.py").open("wb") as file:
        file.truncate(2 << 30)
    git(folder, "add", "-N", "weights.py")
    kept = keep(folder / "train.py", store_of(tmp_path))
    assert (kept.parent / "weights.py").readlink() == folder / "weights.py"
    with pytest.raises(NotKept, match=r"weights.py has more than 4.0 MB, or is no file$"):
        keep(folder / "weights.py", store_of(tmp_path))


def test_more_files_than_the_bound_are_kept_of_the_scripts_folder_alone_else_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_code, "MOST_FILES", 3)
    kept = keep(folder / "train.py", store_of(tmp_path))
    assert kept.parent.parent == store_of(tmp_path)
    (folder / "more.py").write_text("")
    with pytest.raises(NotKept, match=rf"^{folder} holds more than 3 files of code or 32 MB of it$"):
        keep(folder / "train.py", store_of(tmp_path))
    job = ProgramJob(name="a", words=("python", "train.py"), launcher="plain", script="train.py")
    _, why = kept_code.with_kept_code(job_in(job, folder), store_of(tmp_path))
    assert why.startswith("its code is not kept, and runs as it is at each start: ")


def job_in(job: ProgramJob, folder: Path) -> ProgramJob:
    """Return a job that begins in a folder."""
    return replace(job, working_dir=str(folder))


def test_index_of_a_hundred_thousand_files_is_too_many_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "train.py").write_text("")
    git(folder, "init", "-q")
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    lines = "".join(f"100644 {blob}\tf{number}\n" for number in range(100_000))
    subprocess.run(["git", "-C", str(folder), "update-index", "--index-info"], input=lines.encode(), check=True)
    with pytest.raises(NotKept, match=r"holds more than 2,000 files of code"):
        keep(folder / "train.py", store_of(tmp_path))


def test_symbolic_link_out_of_the_folder_is_no_copy_of_what_it_leads_to(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "link.py").symlink_to(tmp_path / "secret")
    git(folder, "add", "link.py")
    kept = keep(folder / "train.py", store_of(tmp_path))
    assert (kept.parent / "link.py").readlink() == folder / "link.py"
    copied = [path for path in kept.parents[1].rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in copied if "secret" in path.read_text()]


def test_folder_that_changes_while_it_is_kept_is_read_again_and_given_up_where_it_always_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, changes = kept_code._read, [1]

    def changing(top: Path, names: list[str]) -> object:
        found = list(read(top, names))
        if changes:
            changes.pop()
            (folder / "train.py").write_text(f"# {len(found)} {os.urandom(8).hex()}\n")
        return iter(found)

    monkeypatch.setattr(kept_code, "_read", changing)
    assert keep(folder / "train.py", store_of(tmp_path)).read_text() == (folder / "train.py").read_text()
    changes += [1] * 9
    with pytest.raises(NotKept, match=r"change all the while$"):
        keep(folder / "train.py", store_of(tmp_path))


def test_code_that_a_program_has_changed_where_it_is_kept_is_kept_anew(folder: Path, tmp_path: Path) -> None:
    store = store_of(tmp_path)
    first = keep(folder / "train.py", store)
    (first.parent / "nets" / "__init__.py").write_text("SIZE = 'changed by the program'\n")
    second = keep(folder / "train.py", store)
    assert (second.parent / "nets" / "__init__.py").read_text() == "SIZE = 1\n"
    assert keep(folder / "train.py", store) == second
    assert "changed" in (first.parent / "nets" / "__init__.py").read_text(), "a job may run it"


def test_code_that_was_deleted_but_for_what_a_program_wrote_is_kept_again(folder: Path, tmp_path: Path) -> None:
    store, scripts = store_of(tmp_path), []
    for number in range(3):
        (folder / "train.py").write_text(f"# {number}\n")
        scripts.append(keep(folder / "train.py", store))
        (scripts[-1].parent / "result").write_text("")
        os.utime(scripts[-1].parents[1], (number, number))
    for most in (2, 1):
        assert kept_code.is_full(store, most=most)
        clear(store, frozenset(), most=most)
    assert [script.exists() for script in scripts] == [False, False, True]
    (folder / "train.py").write_text("# 0\n")
    assert keep(folder / "train.py", store).read_text() == "# 0\n"


def test_store_when_it_holds_too_many_loses_the_oldest_but_what_jobs_use_and_programs_wrote(
    folder: Path, tmp_path: Path
) -> None:
    store, scripts = store_of(tmp_path), []
    for number in range(4):
        (folder / "train.py").write_text(f"# {number}\n")
        scripts.append(keep(folder / "train.py", store))
        os.utime(scripts[-1].parents[1], (number, number))
    (scripts[0].parent / "result").write_text("written by the program")
    clear(store, frozenset({str(scripts[1])}), most=1)
    assert not scripts[0].exists()
    assert (scripts[0].parent / "result").read_text() == "written by the program"
    assert scripts[1].exists()
    assert not scripts[2].parents[1].exists()
    assert scripts[3].exists()
    assert (folder / "data.bin").exists()
