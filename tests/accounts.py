"""Work done as another user of this machine, by a child process that has given up all other rights; needs root.

as_account("daemon", lambda: Path("/etc/shadow").read_text())
"""

import os
import pwd
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from tests.needs import missing

_LIMIT_BYTES = 1 << 20


def as_account(name: str, act: Callable[[], str]) -> str:
    """Return what `act` returns in a child process of that account; AssertionError with its traceback if it fails."""
    account = pwd.getpwnam(name)
    return as_ids(account.pw_uid, account.pw_gid, act, groups=os.getgrouplist(name, account.pw_gid))


def as_ids(uid: int, gid: int, act: Callable[[], str], *, groups: list[int] | None = None) -> str:
    """Return what `act` returns in a child process of these ids, whether or not they have an account."""
    if os.geteuid() != 0:
        missing("to be another user takes root")
    read, write = os.pipe()
    with warnings.catch_warnings():
        # The child does little, and nothing with what other threads may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be(uid, gid, groups or [gid], act, write)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        answer = said.read(_LIMIT_BYTES).decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, answer
    return answer


def _be(uid: int, gid: int, groups: list[int], act: Callable[[], str], write: int) -> None:
    status = 1
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.write(write, act().encode())
        status = 0
    except BaseException:  # the parent raises it
        os.write(write, traceback.format_exc().encode())
    finally:
        os._exit(status)


@contextmanager
def passable_folder() -> Iterator[Path]:
    """Yield a new folder that all users reach; pytest's own are for their owner alone."""
    folder = Path(tempfile.mkdtemp(prefix="voda-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        rmtree(folder)
