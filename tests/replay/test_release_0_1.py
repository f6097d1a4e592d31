"""Logs that release 0.1 wrote, in every form it kept them: they are read, proven, decided again and carried on.

`release-0.1/README.md` says how they were made. Rule: they are history. Neither they nor `expected.json`, which holds
what release 0.1 itself made of them, are ever made again.
"""

import asyncio
import json
import shutil
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import pytest

from tests.builders import a_fact
from tests.commands import Voda
from tests.nats import NatsServer, Node, binary
from tests.postgres import plain
from tests.service import a_service
from voda.controller.follower import Restorable, catch_up, restore
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import verify_log
from voda.log.factory import open_log, open_store
from voda.log.store import EventStore
from voda.policies import POLICIES
from voda.projections.job_registry import JobRegistry
from voda.projections.live import Live

HERE: Final = Path(__file__).with_name("release-0.1")
ARCHIVE: Final = HERE / "archive"
EXPECTED: Final[Mapping[str, Any]] = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
LOGS: Final = sorted(EXPECTED["logs"])
IN_STORES: Final = ("kubernetes", "replicas")
"""The logs that lie in every store; of `replicas` the beginning is in the archive only."""
ALL: Final = 100_000
PROJECTIONS: Final[Sequence[Callable[[], Restorable]]] = (Live, JobRegistry)
"""Of which snapshots are taken."""


class Form(NamedTuple):
    """One log in one form."""

    kind: str
    name: str

    @property
    def expected(self) -> Mapping[str, Any]:
        """What release 0.1 made of the log."""
        found: Mapping[str, Any] = EXPECTED["logs"][self.name]
        return found

    @property
    def is_archived(self) -> bool:
        """Whether the beginning of the log is in the archive only."""
        return self.kind in MARKS and self.name == "replicas"


class Log(NamedTuple):
    """A log where a test can open it."""

    form: Form
    location: str

    @property
    def archive(self) -> Path | None:
        """The folder that holds the beginning of the log, if it is archived."""
        return ARCHIVE if self.form.is_archived else None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EventStore]:
        """Open the whole log for reading."""
        store = await open_log(self.location, archive=self.archive)
        try:
            yield store
        finally:
            await store.close()


MARKS: Final[Mapping[str, Any]] = {"sqlite": (), "postgres": pytest.mark.postgres, "jetstream": pytest.mark.nats}


def forms(*kinds: str) -> Sequence[Any]:
    """Return parameters for every log in every form of these kinds."""
    made = [Form("export", name) for name in LOGS] + [Form("backup", "kubernetes")]
    made += [Form(kind, name) for kind in MARKS for name in IN_STORES]
    chosen = [form for form in made if form.kind in kinds]
    return [pytest.param(form, marks=MARKS.get(form.kind, ()), id="-".join(form)) for form in chosen]


EVERY: Final = forms("export", "backup", *MARKS)
STORED: Final = forms(*MARKS)


# ---- where the logs come from


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stores held, unpacked."""
    folder = tmp_path_factory.mktemp("release-0.1")
    with tarfile.open(HERE / "stores.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def jetstream(stores: Path) -> Iterator[NatsServer]:
    """A NATS server on the files that the server of release 0.1 left."""
    found = binary()
    assert found is not None, "the tests that ask for it are skipped where there is none"
    folder = stores / "jetstream"
    server = NatsServer([Node(found, folder)])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def log(request: pytest.FixtureRequest, stores: Path, tmp_path: Path) -> Log:
    """The log that a test asks for by its form; in JetStream all tests read the same one, so they leave it as it is."""
    form: Form = request.param
    match form.kind:
        case "export":
            return Log(form, str(HERE / "exports" / f"{form.name}.jsonl.gz"))
        case "backup":
            return Log(form, str(HERE / "backup"))
        case "sqlite":
            shutil.copytree(stores / "sqlite", tmp_path / "sqlite")
            return Log(form, str(tmp_path / "sqlite" / f"{form.name}.db"))
        case "postgres":
            url: str = request.getfixturevalue("postgres_database")
            script = (stores / "postgres" / f"{form.name}.sql").read_text(encoding="utf-8")
            asyncio.run(run_script(url, script))
            return Log(form, url)
    # Skips the test, or fails it in CI, where there is no server to be had.
    request.getfixturevalue("nats_server")
    server: NatsServer = request.getfixturevalue("jetstream")
    return Log(form, server.url(form.name))


async def run_script(url: str, script: str) -> None:
    connection = await asyncpg.connect(plain(url))
    try:
        await connection.execute(script)
    finally:
        await connection.close()


@pytest.fixture
def voda(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Voda:
    monkeypatch.setenv("VODA_ARCHIVE", str(ARCHIVE))
    return Voda(monkeypatch, capfd)


# ---- what is compared; expected.json was made by these functions


async def events_of(store: EventStore) -> Mapping[str, Any]:
    """Return what identifies the stored events, byte for byte, and what they are decoded to, less their facts."""
    sealed = await store.read_sealed(0, ALL)
    decoded = await store.read(0, ALL)
    bodies = [json.loads(one.body) for one in sealed]
    stored, read = sha256(), sha256()
    for one in sealed:
        stored.update(f"{one.position} {one.hash} ".encode() + one.body + b"\n")
    for event in decoded:
        kept = (event.position, event.stream, event.version, event.event_id, event.recorded_at, event.actor)
        read.update(repr((*kept, event.correlation_id, event.causation_id, event.epoch)).encode() + b"\n")
    return {
        "events": len(decoded),
        "types": dict(sorted(Counter(body["type"] for body in bodies).items())),
        "stored": stored.hexdigest(),
        "decoded": read.hexdigest(),
    }


def scene_of(told: Mapping[str, Any]) -> Any:
    """Return what `voda replay --until` shows, each node and job as one row."""
    scenes = {}
    for pool in told["pools"]:
        nodes = {
            node["name"]: [node["gpus"], node["foreign_gpus"], node["free_gpus"], node["held_gpus"]]
            for node in pool["nodes"]
        }
        jobs = {
            job["job_id"]: [
                *(job[name] for name in ("phase", "planned", "priority", "queue_level", "epochs_done", "restarts")),
                *(job[name] for name in ("min_replicas", "max_replicas", "epochs")),
                *(round(job[name], 3) for name in ("waited_s", "running_s", "attained_gpu_s")),
                " ".join(job["nodes"]),
            ]
            for job in pool["jobs"]
        }
        about = [pool[name] for name in ("policy", "placer", "plan", "capacity_gpus")]
        scenes[pool["pool"]] = {"about": about, "nodes": nodes, "jobs": jobs}
    return scenes


async def outcome_of(store: EventStore) -> Mapping[str, Any]:
    """Return what the API tells in the end of all jobs and pools of the log."""
    names = sorted({stream.partition(".")[2] for stream in await store.heads() if stream.startswith("settings.")})
    async with a_service(store, pools=names) as service:
        listed = (await service.ask("GET", "/api/v1/jobs?limit=500")).json()
        pools = [(await service.ask("GET", f"/api/v1/pools/{name}")).json() for name in names]
    jobs = {
        job["job_id"]: [
            *(job[name] for name in ("phase", "kind", "user", "priority", "restarts", "resizes", "failures")),
            *(job[name] for name in ("min_replicas", "max_replicas", "gpus_per_replica", "reason")),
            *(round(job[name], 3) for name in ("running_s", "waiting_s", "gpu_s")),
            job["progress"]["epochs_done"],
        ]
        for job in listed["items"]
    }
    assert len(jobs) == listed["total"]
    settings = {pool["name"]: settings_of_then(pool["settings"]) for pool in pools}
    return {
        "jobs": jobs,
        "pools": {pool["name"]: [pool["plan"], pool["gpus"], settings[pool["name"]]] for pool in pools},
    }


_RESIZES = 5
"""Place of a job's resizes in an outcome."""
_LATER = ("retention_s", "retention_bytes", "output_bytes", "node_grace_s", "start_timeout_s", "reclaim_grace_s")


def settings_of_then(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pool's settings as release 0.1 wrote them: one set of parameters for both Tiresias policies.

    It had no settings of folders and output.
    """
    parameters = settings["parameters"]
    assert parameters["tiresias"].items() <= parameters["elastic-tiresias"].items()
    rest = {name: value for name, value in settings.items() if name not in ("parameters", *_LATER)}
    return {**rest, **{f"tiresias_{name}": value for name, value in parameters["elastic-tiresias"].items()}}


# ---- the logs


@pytest.mark.parametrize("log", EVERY, indirect=True)
async def test_events_are_those_that_were_written(log: Log) -> None:
    async with log.opened() as store:
        found = await events_of(store)
    assert found == {name: log.form.expected[name] for name in found}


@pytest.mark.parametrize("log", EVERY, indirect=True)
def test_verify_finds_every_event_as_written(log: Log, voda: Voda) -> None:
    archive = ["--archive", log.archive] if log.archive else []
    said = voda("log", "verify", log.location, "-o", "json", *archive)
    told = json.loads(said.out)
    assert (said.status, told["is_intact"], told["problem"]) == (0, True, "")
    assert (told["events"], told["snapshots"]) == (log.form.expected["events"], 4 if log.form.kind in MARKS else 0)


@pytest.mark.parametrize("log", EVERY, indirect=True)
def test_decisions_made_again_come_out_as_recorded(log: Log, voda: Voda) -> None:
    said = voda("replay", log.location, "--verify", "-o", "json")
    told = json.loads(said.out)
    assert told["difference"] is None
    assert (said.status, told["decisions"]) == (0, log.form.expected["decisions"])


@pytest.mark.parametrize("log", EVERY, indirect=True)
def test_past_is_shown_as_it_was_shown_then(log: Log, voda: Voda) -> None:
    for position, scene in log.form.expected["scenes"].items():
        said = voda("replay", log.location, "--until", position, "-o", "json")
        assert scene_of(json.loads(said.out)) == scene, position


@pytest.mark.parametrize("log", EVERY, indirect=True)
async def test_jobs_and_pools_end_as_they_ended_then(log: Log) -> None:
    async with log.opened() as store:
        found = json.loads(json.dumps(await outcome_of(store)))
    assert without_resizes(found) == without_resizes(log.form.expected["outcome"])


def without_resizes(outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an outcome without the resizes of jobs: release 0.1 counted every change of their number of workers."""
    jobs = {job_id: [*fields[:_RESIZES], *fields[_RESIZES + 1 :]] for job_id, fields in outcome["jobs"].items()}
    return {**outcome, "jobs": jobs}


@pytest.mark.parametrize("log", STORED, indirect=True)
async def test_state_from_a_snapshot_of_then_and_its_tail_equals_the_whole_replay(log: Log) -> None:
    async with log.opened() as store:
        end = await store.position()
        for at_most in (end, end * 7 // 10):
            for empty in PROJECTIONS:
                # A snapshot in a format that is not known any more is passed over.
                resumed, replayed = empty(), empty()
                position = await restore(store, resumed, at_most=at_most)
                await catch_up(store, [resumed], after=position)
                await catch_up(store, [replayed], after=0)
                assert resumed.dump() == replayed.dump()


# ---- carried elsewhere, and carried on


@pytest.mark.parametrize("log", EVERY, indirect=True)
def test_copy_holds_the_same_events(log: Log, voda: Voda, tmp_path: Path) -> None:
    copy = Log(Form("copy", log.form.name), str(tmp_path / "copy.db"))
    said = voda("log", "copy", log.location, copy.location)
    assert said.status == 0, said.err
    assert asyncio.run(opened_events(copy))["stored"] == log.form.expected["stored"]


@pytest.mark.parametrize("name", LOGS)
def test_export_when_imported_holds_the_same_events(name: str, voda: Voda, tmp_path: Path) -> None:
    made = Log(Form("import", name), str(tmp_path / "made.db"))
    said = voda("log", "import", HERE / "exports" / f"{name}.jsonl.gz", made.location)
    assert said.status == 0, said.err
    assert asyncio.run(opened_events(made))["stored"] == made.form.expected["stored"]


@pytest.mark.parametrize(("position", "events"), [("", 463), ("200", 200)])
def test_backup_when_restored_holds_the_same_events(position: str, events: int, voda: Voda, tmp_path: Path) -> None:
    made = Log(Form("restored", "kubernetes"), str(tmp_path / "made.db"))
    said = voda("log", "restore", HERE / "backup", made.location, *(["--to-position", position] if position else []))
    assert said.status == 0, said.err
    found = asyncio.run(opened_events(made))
    assert found["events"] == events
    assert (found["stored"] == made.form.expected["stored"]) == (not position)


@pytest.mark.parametrize("log", forms("sqlite")[:1], indirect=True)
def test_backup_is_brought_up_to_date_without_touching_what_it_has(log: Log, voda: Voda, tmp_path: Path) -> None:
    old = sorted(path.name for path in (HERE / "backup").iterdir())[:2]
    (tmp_path / "backup").mkdir()
    for name in old:
        shutil.copy(HERE / "backup" / name, tmp_path / "backup" / name)
    said = voda("log", "backup", log.location, tmp_path / "backup")
    assert said.status == 0, said.err
    for name in old:
        assert (tmp_path / "backup" / name).read_bytes() == (HERE / "backup" / name).read_bytes()
    backup = Log(Form("backup", "kubernetes"), str(tmp_path / "backup"))
    assert asyncio.run(opened_events(backup))["stored"] == log.form.expected["stored"]


@pytest.mark.parametrize("log", forms("sqlite", "postgres"), indirect=True)
async def test_log_is_carried_on(log: Log) -> None:
    expected = log.form.expected["events"]
    await append_to(log)
    async with log.opened() as store:
        assert await store.position() == expected + 1
        assert (await store.read(expected, 10))[0].event_id == "of-today"


@pytest.mark.parametrize(
    "log", [form for form in forms("sqlite", "postgres") if form.values[0].is_archived], indirect=True
)
def test_archived_log_is_archived_further(log: Log, voda: Voda, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(ARCHIVE, archive)
    said = voda("log", "snapshot", log.location, "--archive", archive)
    assert said.status == 0, said.err
    said = voda("log", "archive", log.location, archive, "--before", 431, "-o", "json")
    assert (said.status, json.loads(said.out)["base"]) == (0, 430)
    said = voda("log", "verify", log.location, "--archive", archive)
    assert said.status == 0, said.err
    said = voda("log", "copy", log.location, tmp_path / "copy.db", "--archive", archive)
    assert said.status == 0, said.err
    copy = Log(Form("copy", log.form.name), str(tmp_path / "copy.db"))
    assert asyncio.run(opened_events(copy))["stored"] == log.form.expected["stored"]


@pytest.mark.nats
@pytest.mark.parametrize("name", IN_STORES)
async def test_log_in_jetstream_is_carried_on(name: str, nats_server: NatsServer, tmp_path: Path) -> None:
    """On a server of its own: what is appended stays."""
    found = binary()
    assert found is not None, nats_server
    with tarfile.open(HERE / "stores.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    server = NatsServer([Node(found, tmp_path / "jetstream")])
    server.start()
    try:
        log = Log(Form("jetstream", name), server.url(name))
        await append_to(log)
        async with log.opened() as store:
            assert await store.position() == log.form.expected["events"] + 1
    finally:
        server.stop()


async def append_to(log: Log) -> None:
    store = await open_store(log.location)
    try:
        await store.append("job.of-today", ANY_VERSION, [a_fact("of-today", at=2_000_000_000.0)])
        verdict = await verify_log(store)
        assert verdict.problem == ""
        assert verdict.events == log.form.expected["events"] + 1
    finally:
        await store.close()


async def opened_events(log: Log) -> Mapping[str, Any]:
    async with log.opened() as store:
        return await events_of(store)


# ---- what they are good for


def test_logs_hold_every_type_of_event_that_release_0_1_wrote() -> None:
    types = {word for name in LOGS for word in EXPECTED["logs"][name]["types"]}
    assert types == set(EXPECTED["types"])
    assert set(EXPECTED["logs"]["kubernetes"]["types"]) == types


@pytest.mark.parametrize("name", LOGS)
async def test_jobs_differ_in_priority_which_steered_nothing_then(name: str) -> None:
    store = await open_log(HERE / "exports" / f"{name}.jsonl.gz")
    submitted = [
        json.loads(one.body)["data"]["spec"] for one in await store.read_sealed(0, ALL) if b'"spec"' in one.body
    ]
    assert len({spec.get("priority", 0) for spec in submitted}) > 3
    assert any(spec.get("queue") for spec in submitted)


def test_every_policy_decided_a_log() -> None:
    assert {f"simulated-{name}" for name in POLICIES} <= set(LOGS)
