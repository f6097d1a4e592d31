"""The checker of the torture: it passes what is sound, and names each kind of damage.

Rule: every claim has a damage that breaks it; a checker that cannot fail proves nothing.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.torture.chaos import Tally
from tests.torture.checker import Findings, judged
from tests.torture.evidence import read_journal, read_log
from tests.torture.run import _idle
from tests.unit.torture.damages import DAMAGE, INVENTED, job_is_lost
from tests.unit.torture.stories import MANIFEST, Story, a_fact, a_job, a_sound_story, asked, told
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobCompleted, JobSubmitted, LeaderElected, NodeJoined
from voda.log.archive.copy import copy_to_folder
from voda.log.memory import MemoryStore


def found(story: Story, folder: Path) -> Findings:
    """Return what the checker finds."""
    log, journals = story.written(folder)
    read = [read_journal(path) for path in journals]
    bad = [line for _, lines in read for line in lines]
    return {**judged(read_log(log), [one for some, _ in read for one in some]), "journals": bad}


def _name_of(value: object) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", "damage").strip("_")


def test_checker_when_all_is_sound_finds_nothing(tmp_path: Path) -> None:
    assert {claim: what for claim, what in found(a_sound_story(), tmp_path).items() if what} == {}


def test_checker_when_a_refused_change_came_behind_its_jobs_end_finds_nothing(tmp_path: Path) -> None:
    story = a_sound_story()
    story.facts.append(a_fact("job.b", "job.changed", {"job_id": "b", "priority": 405}))
    story.journals["bob"] += [
        told(5, 18.6, outcome="refused", status=409),
        asked(6, 19.5, does="read", job_id="b", after=18),
        {**told(6, 19.6, **a_job("b", 14, phase="Canceled")), "position": 18},
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
        NodeJoined(node=Node(name="n1", gpus=Gpus(2))),
        leader,
        JobSubmitted(spec=spec),
        JobCompleted(job_id="a"),
    ]
    for number, fact in enumerate(facts):
        epoch = 1 if fact is leader else 0
        sealed_fact = Fact(data=fact, event_id=f"e{number}", recorded_at=1_700_000_000.0 + number)
        await store.append(fact.stream, ANY_VERSION, [sealed_fact], epoch=epoch)
    await copy_to_folder(store, tmp_path / "log")
    log = read_log(tmp_path / "log")
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
    job_is_lost(story)
    broken = run(story)
    assert broken.returncode == 1
    assert "bob operation 1 (submit): acknowledged as job b, and not in the log" in broken.stdout
    story = a_sound_story()
    story.facts, story.journals = [], {name: [] for name in story.journals}
    idle = run(story)
    assert idle.returncode == 2, idle.stdout + idle.stderr


@pytest.mark.parametrize(
    ("kills", "changed"),
    [(0, {}), (9, {"plans": 0}), (9, {"acknowledged": 1}), (9, {"acknowledged": 0, "operations": 0})],
)
def test_torture_in_which_nothing_happened_proves_nothing(kills: int, changed: dict[str, int]) -> None:
    figures = {"plans": 2, "acknowledged": 5, "operations": 10}
    assert _idle(Tally(kills=9), figures) == ()
    assert _idle(Tally(kills=kills), figures | changed)


def test_checker_when_imported_brings_nothing_of_voda() -> None:
    code = (
        "import sys, tests.torture.checker; print([name for name in sys.modules if name.partition('.')[0] == 'voda'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
