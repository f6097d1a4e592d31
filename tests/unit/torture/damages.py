"""Damage to a sound story, each with the claim that it must break.

Rule: every claim of the checker has one here.
"""

from collections.abc import Callable, Sequence

from tests.torture.evidence import sealed
from tests.unit.torture.stories import Story, a_fact, a_job, a_submission, told


def job_is_lost(story: Story) -> None:
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
    extra = [a_submission("a-2", "ann", "k1"), a_fact("job.a-2", "job.canceled", {"job_id": "a-2"})]
    extra[0]["data"]["spec"]["name"] = "a"
    story.facts += extra


def _two_keys_get_one_job(story: Story) -> None:
    story.journals["bob"].append(told(5, 17.6, **a_job("b", 16)))


def _change_is_lost(story: Story) -> None:
    story.fact("job.changed")["data"]["priority"] = 104


def _change_is_recorded_too_often(story: Story) -> None:
    extra = [a_fact("job.a", "job.changed", {"job_id": "a", "priority": 105}) for _ in range(2)]
    story.facts[8:8] = extra


def _deletion_is_lost(story: Story) -> None:
    story.facts.remove(story.fact("job.cancel_requested"))
    story.fact("job.canceled")["type"] = "job.completed"
    story.answer("bob", 2)["revision"] = 11


def _nobody_asked(story: Story) -> None:
    story.facts += [a_submission("x", "eve", "k9"), a_fact("job.x", "job.canceled", {"job_id": "x"})]


def _refused_change_is_recorded(story: Story) -> None:
    story.facts.insert(12, a_fact("job.b", "job.changed", {"job_id": "b", "priority": 405}))


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
    story.journals["ann"][-1] = {**told(3, 16.6), "outcome": "refused", "status": 404}


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
    story.facts.append(a_fact("job.a", "job.failed", {"job_id": "a"}))


def _two_live_jobs_share_a_name(story: Story) -> None:
    story.fact("job.submitted", 1)["data"]["spec"]["name"] = "a"


def _job_begins_twice(story: Story) -> None:
    again = a_submission("a", "ann", "k1")
    again["event_id"] = "submit-again"
    story.facts.append(again)


def _job_was_not_submitted(story: Story) -> None:
    story.facts.append(a_fact("job.y", "job.completed", {"job_id": "y"}))


def _worker_is_left(story: Story) -> None:
    story.facts.remove(story.fact("worker.exited", 1))


def _worker_starts_twice(story: Story) -> None:
    story.facts.insert(7, a_fact("job.a", "worker.started", {"job_id": "a", "workers": {"0": "n1"}}))


def _worker_exits_that_did_not_run(story: Story) -> None:
    story.facts.append(a_fact("job.b", "worker.exited", {"job_id": "b", "workers": [0]}))


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
    (job_is_lost, JOBS),
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
