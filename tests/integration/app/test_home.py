"""The folder of a voda, and what a start writes into its log."""

import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.accounts import as_account, passable_folder
from tests.builders import a_spec
from tests.needs import needs
from voda.app.home import Home, ServerFile
from voda.app.pool_setup import record_settings
from voda.app.runtime import Snapshots
from voda.application.change_settings import check_settings
from voda.application.read_model import ReadModel
from voda.clock import VirtualClock
from voda.domain.errors import AlreadyExists, InvalidInput, StoreNotWritable
from voda.domain.settings import ON_ONE_MACHINE
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobSubmitted
from voda.log.memory import MemoryStore


def test_lock_when_held_keeps_others_out_and_names_the_holder(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    with home.locked(), pytest.raises(AlreadyExists, match=f"process {os.getpid()}"), Home(tmp_path).locked():
        pass
    with Home(tmp_path).locked():
        pass


def test_home_when_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.make()
    assert oct(home.folder.stat().st_mode & 0o777) == "0o700"


def test_home_when_a_file_is_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="name another with --home"):
        Home(tmp_path / "file" / "home").make()


def test_home_that_is_there_and_cannot_be_written_is_not_told_as_one_that_cannot_be_made() -> None:
    with pytest.raises(StoreNotWritable, match="the folder /proc/self cannot be written to: "):
        Home(Path("/proc/self")).make()
    with pytest.raises(StoreNotWritable, match="the folder /proc/self/home cannot be made: "):
        Home(Path("/proc/self/home")).make()


def test_server_when_published_is_read_whole_and_withdrawn(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.publish(ServerFile(url="http://127.0.0.1:1", pid=7, version="1"))
    assert (tmp_path / "server.json").read_text() == '{"url":"http://127.0.0.1:1","pid":7,"version":"1"}'
    home.withdraw(8)
    assert (tmp_path / "server.json").exists()
    home.withdraw(7)
    home.withdraw(7)
    assert not (tmp_path / "server.json").exists()


def test_home_when_its_jobs_belong_to_another_log_is_refused(tmp_path: Path) -> None:
    Home(tmp_path).bind("voda.db")
    Home(tmp_path).bind("voda.db")
    with pytest.raises(InvalidInput, match=r"belong to the log voda\.db, got other\.db"):
        Home(tmp_path).bind("other.db")


class Start:
    """A log, and a start of voda with some options."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = VirtualClock(100.0)
        self.view = ReadModel(self.store)

    async def settle(self, **fields: Any) -> int:
        """Settle the pool `default`, and return how many events that took."""
        before = await self.store.position()
        self.view = ReadModel(self.store)
        await self.view.open()
        live = self.view.cluster
        await record_settings(
            self.store, self.clock, live, "default", check_settings(fields), ON_ONE_MACHINE, actor="up"
        )
        self.view = ReadModel(self.store)
        await self.view.open()
        return await self.store.position() - before


async def test_pool_when_new_begins_with_settings_for_one_machine() -> None:
    start = Start()
    assert await start.settle() == 1
    settings = start.view.cluster.settings("default")
    assert (settings.ratelimit_s, settings.resize_cost_s, settings.policy) == (5.0, 5.0, "elastic-fifo")


async def test_pool_when_known_keeps_what_was_set_unless_told_otherwise() -> None:
    start = Start()
    await start.settle(policy="afs-l", ratelimit_s=0.0)
    assert await start.settle() == 0
    assert await start.settle(policy="afs-l", ratelimit_s=0.0) == 0
    assert await start.settle(ratelimit_s=1.0, placer="packed") == 1
    settings = start.view.cluster.settings("default")
    assert (settings.policy, settings.placer, settings.ratelimit_s) == ("afs-l", "packed", 1.0)


async def test_pool_when_given_parameters_of_a_policy_records_those_that_are_new() -> None:
    start = Start()
    assert await start.settle(parameters={"tiresias": {"demote_gpu_s": 7200.0}}) == 1
    assert await start.settle(parameters={"tiresias": {"demote_gpu_s": 7200.0}}) == 0
    assert await start.settle(parameters={"tiresias": {"demote_gpu_s": 60.0}}) == 1
    assert start.view.cluster.settings("default").parameters["tiresias"] == {"demote_gpu_s": 60.0}


async def test_pool_when_told_an_unknown_policy_is_refused_and_unchanged() -> None:
    start = Start()
    with pytest.raises(InvalidInput, match="nope"):
        await start.settle(policy="nope")
    assert await start.store.position() == 0


async def test_view_when_opened_from_snapshots_is_as_from_the_whole_log() -> None:
    store, clock = MemoryStore(), VirtualClock(100.0)

    async def submit(job_id: str) -> None:
        spec = a_spec(job_id, name=job_id)
        fact = Fact(data=JobSubmitted(spec=spec), event_id=clock.new_id(), recorded_at=clock.now())
        await store.append(f"job.{job_id}", ANY_VERSION, [fact])

    await submit("a")
    view = ReadModel(store)
    snapshots = Snapshots(store, view)
    await view.open()
    await snapshots.take()
    await submit("b")
    opened, whole = ReadModel(store), ReadModel(MemoryStore())
    await opened.open()
    for event in await store.read(0, 100):
        whole.live.apply(event)
        whole.job_registry.apply(event)
    assert await store.snapshots.latest(opened.job_registry.FORMAT) is not None
    assert opened.live.state_hash() == whole.live.state_hash()
    assert opened.job_registry.dump() == whole.job_registry.dump()


def test_home_of_many_users_lets_them_through_but_shows_them_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    assert mode(home.folder) == mode(home.jobs) == 0o700
    for name in ("voda.db", "voda.db-wal", "secret"):
        (home.folder / name).write_text("secret")
        (home.folder / name).chmod(0o644)
    home.let_users_through()
    assert mode(home.folder) == mode(home.jobs) == 0o711
    assert {mode(home.folder / name) for name in ("voda.db", "voda.db-wal", "secret")} == {0o600}
    home.publish(ServerFile(url="http://127.0.0.1:1", pid=7, version="1"))
    assert mode(home.folder / "server.json") == 0o644


def test_home_that_others_may_write_serves_no_users(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.folder.chmod(0o777)
    with pytest.raises(InvalidInput, match="could put files in the place of voda's: name another with --home"):
        home.let_users_through()
    home.folder.chmod(0o700)
    os.chown(home.jobs, 12_345, -1)
    with pytest.raises(InvalidInput, match=r"own or may write the folder .*/jobs"):
        home.let_users_through()


@needs(os.geteuid() == 0, "only root becomes another user")
def test_home_of_one_user_that_becomes_one_of_many_shows_them_nothing_of_before() -> None:
    with passable_folder() as folder:
        home = Home(folder / "home")
        home.make()
        certificate, outside = home.folder / "cert.pem", folder / "outside"
        shown = [certificate, outside, home.folder / "server.json", home.jobs / ".records/kept"]
        hidden = [home.folder / name for name in ("archive/1-9.voda", "backup.db", "old.json")] + [home.jobs / "a/out"]
        for file in (*shown, *hidden):
            file.parent.mkdir(exist_ok=True)
            if file.parent.parent in (home.folder, home.jobs):
                file.parent.chmod(0o755)
            file.write_text("secret")
            file.chmod(0o664)
        home.jobs.chmod(0o700)
        (home.folder / "link").symlink_to(outside)
        home.let_users_through(public=[certificate])
        for file in hidden:
            assert as_account("games", lambda file=file: str(os.access(file, os.R_OK))) == "False", file  # type: ignore[misc]
        for file in shown:
            assert as_account("games", file.read_text) == "secret"
        assert (mode(outside), mode(home.folder / "archive"), mode(home.jobs / "a")) == (0o664, 0o700, 0o700)


def test_home_that_users_passed_before_keeps_what_its_owner_opened(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.let_users_through()
    (home.folder / "notes").write_text("for all")
    (home.folder / "notes").chmod(0o644)
    home.let_users_through()
    assert mode(home.folder / "notes") == 0o644


@needs(os.geteuid() == 0, "only root gives folders away")
def test_home_below_a_folder_that_others_own_or_may_write_serves_no_users() -> None:
    with passable_folder() as folder:
        above, games = folder / "above", pwd.getpwnam("games").pw_uid
        home = Home(above / "deep" / "home")
        home.make()
        for owner, rights in ((games, 0o755), (0, 0o775), (0, 0o757)):
            os.chown(above, owner, -1)
            above.chmod(rights)
            with pytest.raises(InvalidInput, match=f"may write the folder {above} above {home.folder}, and could put"):
                home.let_users_through()
        above.chmod(0o1777)
        home.let_users_through()
        (folder / "link").symlink_to(above)
        linked = Home(folder / "link" / "deep" / "home")
        linked.let_users_through()
        os.lchown(folder / "link", games, -1)
        with pytest.raises(InvalidInput, match=f"may write the folder {folder}/link above"):
            linked.let_users_through()
        home.jobs.rmdir()
        (folder / "open" / "jobs").mkdir(parents=True)
        (folder / "open").chmod(0o777)
        home.jobs.symlink_to(folder / "open" / "jobs")
        with pytest.raises(InvalidInput, match=f"may write the folder {folder}/open above {home.jobs}"):
            home.let_users_through()


def mode(path: Path) -> int:
    """Return the permissions."""
    return stat.S_IMODE(path.stat().st_mode)
