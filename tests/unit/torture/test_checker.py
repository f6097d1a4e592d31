"""The checker of the torture: it passes what is sound, and names each kind of damage.

Rule: every claim has a damage that breaks it; a checker that cannot fail proves nothing.
"""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checker import Findings, judged
from tests.torture.evidence import GENESIS, digest, read_journal, read_log, sealed
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.memory import MemoryStore
from voda.events.transfer import export_log
from voda.events.types import AnyFact, JobCompleted, JobSubmitted, LeaderElected, NodeJoined

MANIFEST = {"kind": "MPIJob", "metadata": {"name": "a"}}
Record = dict[str, Any]
_ids = count(1)


@dataclass
class Story:
    """What happened, fact by fact, and what the clients wrote down; may be damaged before it is put on the disk."""

    facts: list[Record] = field(default_factory=list)
    journals: dict[str, list[Record]] = field(default_factory=dict)
    edits: list[Callable[[list[bytes]], None]] = field(default_factory=list)
    """Done to the lines of the export."""

    def written(self, folder: Path) -> tuple[Path, Sequence[Path]]:
        """Write export and journals, and return their paths."""
        lines = _exported(self.facts)
        for edit in self.edits:
            edit(lines)
        log = folder / "log.jsonl"
        log.write_bytes(b"".join(lines))
        paths = []
        for client, records in self.journals.items():
            paths.append(folder / f"{client}.jsonl")
            paths[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
        return log, paths

    def fact(self, type_: str, index: int = 0) -> Record:
        """Return the fact of a type, the first one by default."""
        return [fact for fact in self.facts if fact["type"] == type_][index]

    def answer(self, client: str, operation: int) -> Record:
        """Return the answer to an operation."""
        return next(one for one in self.journals[client] if one["op"] == operation and one["kind"] == "answered")


def a_sound_story() -> Story:
    """Return a log in which two leaders ran two jobs of two users, each event at the instant of its position."""
    story = Story()
    add = story.facts.append
    add(_fact("node.n1", "node.joined", {"node": {"name": "n1", "gpus": 2}}))
    add(_fact("leadership", "leader.elected", {"pool": "", "leader": "r1"}, epoch=1))
    add(_fact("decisions.default", "leader.elected", {"pool": "default", "leader": "r1"}, epoch=1))
    add(_submitted("a", "ann", "k1"))
    add(_submitted("b", "bob", "k1"))
    add(_fact("decisions.default", "plan.adopted", {"pool": "default", "number": 1, "based_on": 5}, epoch=1))
    add(_fact("job.a", "worker.started", {"job_id": "a", "workers": {"0": "n1"}}))
    add(_fact("job.a", "job.changed", {"job_id": "a", "priority": 105}))
    add(_fact("leadership", "leader.elected", {"pool": "", "leader": "r2"}, epoch=2))
    add(_fact("decisions.default", "leader.elected", {"pool": "default", "leader": "r2"}, epoch=2))
    add(_fact("job.b", "worker.started", {"job_id": "b", "workers": {"0": "n1"}}))
    add(_fact("job.b", "job.cancel_requested", {"job_id": "b", "reason": "bob operation 2"}))
    add(_fact("job.b", "worker.exited", {"job_id": "b", "workers": [0]}))
    add(_fact("job.b", "job.canceled", {"job_id": "b"}))
    add(_fact("job.a", "job.completed", {"job_id": "a"}))
    add(_fact("job.a", "worker.exited", {"job_id": "a", "workers": [0]}))
    add(_fact("decisions.default", "plan.adopted", {"pool": "default", "number": 2, "based_on": 16}, epoch=2))
    ids = [[position, fact["event_id"]] for position, fact in enumerate(story.facts, start=1)]
    story.journals["ann"] = [
        _asked(1, 3.5, does="submit", user="ann", name="a", key="k1", manifest=digest(MANIFEST)),
        _told(1, 4.4, **_job("a", 4)),
        _asked(2, 7.5, does="change", job_id="a", priority=105),
        {**_told(2, 7.7), "outcome": "unknown"},
        _asked(2, 7.8, attempt=1, does="change", job_id="a", priority=105),
        _told(2, 8.4, attempt=1, **_job("a", 8, priority=105)),
        _asked(3, 16.5, does="read", job_id="a", after=8),
        _told(3, 16.6, **_job("a", 16, priority=105, phase="Completed")),
    ]
    story.journals["bob"] = [
        _asked(1, 4.5, does="submit", user="bob", name="b", key="k1", manifest=digest(MANIFEST)),
        _told(1, 5.4, **_job("b", 5)),
        _asked(2, 11.5, does="delete", job_id="b", reason="bob operation 2"),
        _told(2, 12.4, **_job("b", 12)),
        _asked(3, 13.5, does="page", after=2),
        _told(3, 13.6, events=ids[2:13], last_position=13),
        _asked(4, 14.5, does="change", job_id="b", priority=405),
        {**_told(4, 14.6), "outcome": "refused", "status": 409},
        _asked(5, 16.5, does="submit", user="bob", name="c", key="k5", manifest=digest(MANIFEST)),
    ]
    return story


def found(story: Story, folder: Path) -> Findings:
    """Return what the checker finds."""
    log, journals = story.written(folder)
    read = [read_journal(path) for path in journals]
    bad = [line for _, lines in read for line in lines]
    return {**judged(read_log(log), [one for some, _ in read for one in some]), "journals": bad}


# ---- damage, each with the claim that it must break


def _job_is_lost(story: Story) -> None:
    story.facts = [fact for fact in story.facts if fact["stream"] != "job.b"]


def _job_is_recorded_late(story: Story) -> None:
    story.answer("ann", 1)["revision"] = 3


def _job_has_another_id(story: Story) -> None:
    story.answer("ann", 1)["job_id"] = "a-2"


def _job_has_another_manifest(story: Story) -> None:
    story.fact("job.submitted")["data"]["spec"]["manifest"] = {"kind": "MPIJob"}


def _job_has_another_user(story: Story) -> None:
    story.fact("job.submitted")["data"]["spec"]["user"] = "eve"


def _key_makes_two_jobs(story: Story) -> None:
    extra = [_submitted("a-2", "ann", "k1"), _fact("job.a-2", "job.canceled", {"job_id": "a-2"})]
    extra[0]["data"]["spec"]["name"] = "a"
    story.facts += extra


def _two_keys_get_one_job(story: Story) -> None:
    story.journals["bob"].append(_told(5, 17.6, **_job("b", 16)))


def _change_is_lost(story: Story) -> None:
    story.fact("job.changed")["data"]["priority"] = 104


def _change_is_recorded_too_often(story: Story) -> None:
    extra = [_fact("job.a", "job.changed", {"job_id": "a", "priority": 105}) for _ in range(2)]
    story.facts[8:8] = extra


def _deletion_is_lost(story: Story) -> None:
    story.facts.remove(story.fact("job.cancel_requested"))
    story.fact("job.canceled")["type"] = "job.completed"
    story.answer("bob", 2)["revision"] = 11


def _nobody_asked(story: Story) -> None:
    story.facts += [_submitted("x", "eve", "k9"), _fact("job.x", "job.canceled", {"job_id": "x"})]


def _refused_change_is_recorded(story: Story) -> None:
    story.facts.insert(12, _fact("job.b", "job.changed", {"job_id": "b", "priority": 405}))


def _recorded_before_it_was_asked_for(story: Story) -> None:
    story.journals["ann"][2]["at"] = story.journals["ann"][4]["at"] = 12.5
    story.journals["ann"][5]["at"] = 12.9


def _seen_before_by_another(story: Story) -> None:
    story.answer("bob", 1)["position"] = 9


def _read_is_stale(story: Story) -> None:
    story.answer("ann", 3).update(revision=7, priority=0, phase="Running")


def _read_is_of_a_lagging_replica(story: Story) -> None:
    story.answer("ann", 3)["position"] = 7


def _read_has_another_priority(story: Story) -> None:
    story.answer("ann", 3)["priority"] = 0


def _read_has_another_phase(story: Story) -> None:
    story.answer("ann", 3)["phase"] = "Running"


def _read_finds_nothing(story: Story) -> None:
    story.journals["ann"][-1] = {**_told(3, 16.6), "outcome": "refused", "status": 404}


def _page_skips(story: Story) -> None:
    del story.answer("bob", 3)["events"][3]


def _page_shows_another_event(story: Story) -> None:
    story.answer("bob", 3)["events"][3][1] = "other"


def _former_leader_decides(story: Story) -> None:
    story.facts[-1]["epoch"] = 1


def _epoch_is_claimed_again(story: Story) -> None:
    story.fact("leader.elected", 3)["epoch"] = 1


def _epoch_has_two_leaders(story: Story) -> None:
    story.fact("leader.elected", 1)["data"]["leader"] = "r9"


def _user_decides(story: Story) -> None:
    story.fact("job.changed")["epoch"] = 1


def _job_never_ends(story: Story) -> None:
    story.facts.remove(story.fact("job.completed"))


def _job_ends_twice(story: Story) -> None:
    story.facts.append(_fact("job.a", "job.failed", {"job_id": "a", "reason": ""}))


def _two_live_jobs_share_a_name(story: Story) -> None:
    story.fact("job.submitted", 1)["data"]["spec"]["name"] = "a"


def _job_begins_twice(story: Story) -> None:
    again = _submitted("a", "ann", "k1")
    again["event_id"] = "submit-again"
    story.facts.append(again)


def _job_was_not_submitted(story: Story) -> None:
    story.facts.append(_fact("job.y", "job.completed", {"job_id": "y"}))


def _worker_is_left(story: Story) -> None:
    story.facts.remove(story.fact("worker.exited", 1))


def _worker_starts_twice(story: Story) -> None:
    story.facts.insert(7, _fact("job.a", "worker.started", {"job_id": "a", "workers": {"0": "n1"}}))


def _worker_exits_that_did_not_run(story: Story) -> None:
    story.facts.append(_fact("job.b", "worker.exited", {"job_id": "b", "workers": [0]}))


def _node_is_overfull(story: Story) -> None:
    story.fact("node.joined")["data"]["node"]["gpus"] = 1


def _bytes(edit: Callable[[list[bytes]], None]) -> Callable[[Story], None]:
    return lambda story: story.edits.append(edit)


def _flip_a_byte(lines: list[bytes]) -> None:
    lines[4] = lines[4].replace(b'"ann"', b'"amn"')


def _drop_an_event(lines: list[bytes]) -> None:
    del lines[6]


def _swap_two_events(lines: list[bytes]) -> None:
    lines[4], lines[5] = lines[5], lines[4]


def _cut_the_tail(lines: list[bytes]) -> None:
    del lines[-2:]


def _drop_the_last_event(lines: list[bytes]) -> None:
    del lines[-2]


def _break_a_line(lines: list[bytes]) -> None:
    lines[5] = lines[5][:40] + b"\n"


def _rewrite_a_past_event(lines: list[bytes]) -> None:
    # As somebody would who recomputes the event's own hash, and not those that follow.
    event = lines[4].partition(b'"event":')[2][:-2].replace(b'"ann"', b'"amn"')
    lines[4] = b'{"position":4,"hash":"%b","event":%b}\n' % (sealed(event).encode(), event)


CHAIN, ONCE, EPOCHS = (
    "hashes, versions and chain fit",
    "every event is there once",
    "one leader per epoch, no decision of a former one",
)
NAMES, GPUS = "one live job per name", "no GPU leaked or lent twice"
JOBS, CHANGES, DELETIONS = (
    "no acknowledged job is lost",
    "no acknowledged change is lost",
    "no acknowledged deletion is lost",
)
DOUBLED, INVENTED, ORDER = "nothing is doubled", "nothing is made up", "order is kept"
READS, PAGES = "reads see what is written", "pages of events skip nothing"

DAMAGE: Sequence[tuple[Callable[[Story], None], str]] = (
    (_job_is_lost, JOBS),
    (_job_is_recorded_late, JOBS),
    (_job_has_another_id, JOBS),
    (_job_has_another_manifest, JOBS),
    (_job_has_another_user, JOBS),
    (_key_makes_two_jobs, DOUBLED),
    (_key_makes_two_jobs, ONCE),
    (_two_keys_get_one_job, DOUBLED),
    (_change_is_lost, CHANGES),
    (_change_is_recorded_too_often, DOUBLED),
    (_deletion_is_lost, DELETIONS),
    (_nobody_asked, INVENTED),
    (_refused_change_is_recorded, INVENTED),
    (_recorded_before_it_was_asked_for, ORDER),
    (_seen_before_by_another, ORDER),
    (_read_is_stale, READS),
    (_read_is_of_a_lagging_replica, READS),
    (_read_has_another_priority, READS),
    (_read_has_another_phase, READS),
    (_read_finds_nothing, READS),
    (_page_skips, PAGES),
    (_page_shows_another_event, PAGES),
    (_former_leader_decides, EPOCHS),
    (_epoch_is_claimed_again, EPOCHS),
    (_epoch_has_two_leaders, EPOCHS),
    (_user_decides, EPOCHS),
    (_job_never_ends, "every job ended"),
    (_job_ends_twice, NAMES),
    (_two_live_jobs_share_a_name, NAMES),
    (_job_begins_twice, NAMES),
    (_job_was_not_submitted, NAMES),
    (_worker_is_left, GPUS),
    (_worker_starts_twice, GPUS),
    (_worker_exits_that_did_not_run, GPUS),
    (_node_is_overfull, GPUS),
    (_bytes(_flip_a_byte), CHAIN),
    (_bytes(_drop_an_event), "positions have no gaps"),
    (_bytes(_drop_an_event), CHAIN),
    (_bytes(_swap_two_events), "positions have no gaps"),
    (_bytes(_cut_the_tail), "every line can be read"),
    (_bytes(_drop_the_last_event), CHAIN),
    (_bytes(_break_a_line), "every line can be read"),
    (_bytes(_rewrite_a_past_event), CHAIN),
)


def _name_of(value: object) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", "damage").strip("_")


def test_checker_when_all_is_sound_finds_nothing(tmp_path: Path) -> None:
    assert {claim: what for claim, what in found(a_sound_story(), tmp_path).items() if what} == {}


def test_checker_when_a_refused_change_came_behind_its_jobs_end_finds_nothing(tmp_path: Path) -> None:
    story = a_sound_story()
    story.facts.append(_fact("job.b", "job.changed", {"job_id": "b", "priority": 405}))
    story.journals["bob"] += [
        _told(5, 18.6, outcome="refused", status=409),
        _asked(6, 19.5, does="read", job_id="b", after=18),
        {**_told(6, 19.6, **_job("b", 14, phase="Canceled")), "position": 18},
    ]
    assert {claim: what for claim, what in found(story, tmp_path).items() if what} == {}


@pytest.mark.parametrize(("damage", "claim"), DAMAGE, ids=_name_of)
def test_checker_when_something_is_damaged_names_the_broken_claim(
    damage: Callable[[Story], None], claim: str, tmp_path: Path
) -> None:
    story = a_sound_story()
    damage(story)
    assert found(story, tmp_path)[claim]


def test_checker_when_every_claim_is_counted_has_a_damage_for_each(tmp_path: Path) -> None:
    claims = set(found(a_sound_story(), tmp_path)) - {"journals"}
    assert claims == {claim for _, claim in DAMAGE}


def test_journal_when_its_last_line_is_torn_is_read_to_there(tmp_path: Path) -> None:
    _, (journal, _) = a_sound_story().written(tmp_path)
    journal.write_bytes(journal.read_bytes()[:-30])
    operations, problems = read_journal(journal)
    assert problems == []
    assert operations[-1].tries[0].outcome == "unknown"


def test_journal_when_a_line_is_damaged_says_so(tmp_path: Path) -> None:
    _, (journal, _) = a_sound_story().written(tmp_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{\n", *lines[2:]]))
    assert read_journal(journal)[1]


async def test_checker_when_voda_exports_a_log_can_read_it(tmp_path: Path) -> None:
    store = MemoryStore()
    spec = JobSpec(job_id="a", name="a", user="ann", manifest=MANIFEST)
    leader = LeaderElected(pool="default", leader="r1")
    facts: Sequence[AnyFact] = [
        NodeJoined(node=Node(name="n1", gpus=2)),
        leader,
        JobSubmitted(spec=spec),
        JobCompleted(job_id="a"),
    ]
    for number, fact in enumerate(facts):
        epoch = 1 if fact is leader else 0
        sealed_fact = Fact(data=fact, event_id=f"e{number}", recorded_at=1_700_000_000.0 + number)
        await store.append(fact.stream, ANY_VERSION, [sealed_fact], epoch=epoch)
    file = io.BytesIO()
    await export_log(store, file)
    (tmp_path / "log.jsonl").write_bytes(file.getvalue())
    log = read_log(tmp_path / "log.jsonl")
    assert len(log.entries) == 4
    broken = {claim for claim, what in judged(log, []).items() if what}
    assert broken == {INVENTED}


def test_checker_when_run_as_a_program_answers_with_its_exit_status(tmp_path: Path) -> None:
    def run(story: Story) -> "subprocess.CompletedProcess[str]":
        log, journals = story.written(tmp_path)
        words = [sys.executable, "-m", "tests.torture.checker", *map(str, journals), "--log", str(log)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    sound = run(a_sound_story())
    assert sound.returncode == 0, sound.stdout + sound.stderr
    story = a_sound_story()
    _job_is_lost(story)
    broken = run(story)
    assert broken.returncode == 1
    assert "bob operation 1 (submit): acknowledged as job b, and not in the log" in broken.stdout


def test_checker_when_imported_brings_nothing_of_voda() -> None:
    code = (
        "import sys, tests.torture.checker; print([name for name in sys.modules if name.partition('.')[0] == 'voda'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def _exported(facts: Sequence[Record]) -> list[bytes]:
    heads: dict[str, Record] = {}
    lines = [b'{"format":"voda-log","version":1}\n']
    for position, fact in enumerate(facts, start=1):
        head = heads.get(fact["stream"], {"version": 0, "hash": GENESIS})
        body = {**fact, "version": head["version"] + 1, "prev": head["hash"]}
        event = json.dumps(body, separators=(",", ":")).encode()
        heads[fact["stream"]] = {"epoch": 0, "hash": sealed(event), "version": head["version"] + 1}
        lines.append(b'{"position":%d,"hash":"%b","event":%b}\n' % (position, sealed(event).encode(), event))
    return [*lines, json.dumps({"events": len(facts), "heads": heads}).encode() + b"\n"]


def _fact(stream: str, type_: str, data: Record, *, epoch: int = 0) -> Record:
    return {"stream": stream, "event_id": f"e{next(_ids)}", "type": type_, "epoch": epoch, "data": data}


def _submitted(job: str, user: str, key: str) -> Record:
    spec = {"job_id": job, "name": job, "user": user, "manifest": MANIFEST}
    fact = _fact(f"job.{job}", "job.submitted", {"spec": spec})
    owned = f"{user}\n{key}".encode()
    return {**fact, "event_id": f"submit-{sealed(owned)[:32]}"}


def _asked(operation: int, at: float, *, attempt: int = 0, **wish: object) -> Record:
    return {"kind": "asked", "op": operation, "try": attempt, "at": at, **wish}


def _told(operation: int, at: float, *, attempt: int = 0, **told: object) -> Record:
    return {"outcome": "acknowledged", **told, "kind": "answered", "op": operation, "try": attempt, "at": at}


def _job(job: str, revision: int, *, priority: int = 0, phase: str = "Running") -> Record:
    told = {"job_id": job, "revision": revision, "priority": priority, "phase": phase, "is_canceling": False}
    return {**told, "position": revision}
