"""The ledger remembers every job in little memory, also beyond the newest ones."""

import tracemalloc

import msgspec

from voda.projections.jobs.registry import SubmissionIndex


def filled(jobs: int) -> SubmissionIndex:
    ledger = SubmissionIndex()
    for number in range(jobs):
        ledger.add(f"job-{number}", f"event-{number}")
    return ledger


def test_every_job_and_its_submission_is_found_and_no_other() -> None:
    # Enough for several tiers beside the tail.
    ledger = filled(30_000)
    for number in range(0, 30_000, 97):
        assert ledger.has(f"job-{number}")
        assert ledger.submitted_by(f"event-{number}") == f"job-{number}"
        assert not ledger.has(f"event-{number}")
        assert ledger.submitted_by(f"job-{number}") is None
    assert not ledger.has("job-30000")
    assert len(ledger) == 30_000


def test_job_with_the_least_digest_of_its_tier_is_found() -> None:
    # Two digests each: one whole tier, and nothing beside it.
    ledger = filled(4_096)
    assert all(ledger.has(f"job-{number}") for number in range(4_096))
    assert all(ledger.submitted_by(f"event-{number}") == f"job-{number}" for number in range(4_096))


def test_state_when_dumped_and_loaded_goes_on_as_before() -> None:
    ledger, again = filled(20_000), SubmissionIndex()
    again.load(ledger.dump())
    for one in (ledger, again):
        one.add("émile", "event-x")
    assert again.dump() == ledger.dump()
    assert again.submitted_by("event-19999") == "job-19999"
    assert again.submitted_by("event-x") == "émile"


def test_memory_is_some_fifty_bytes_a_job() -> None:
    assert len(filled(30_000).dump()) < 30_000 * 60
    tracemalloc.start()
    try:
        ledger = filled(12_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The newest 8,192 digests of two a job are held in a dict, which takes more.
    assert len(ledger) == 12_000
    assert held < 12_000 * 130


def sizes(ledger: SubmissionIndex) -> tuple[int, list[int]]:
    """Return how many digests the dict holds, and how many each tier."""
    tail, tiers, _, _ = msgspec.msgpack.decode(ledger.dump())
    return len(tail), [len(numbers) // 4 for _, numbers in tiers]


def test_newest_digests_stay_in_a_dict_until_they_are_a_tier() -> None:
    assert sizes(filled(4_095)) == (8_190, [])
    assert sizes(filled(4_096)) == (0, [8_192])
    assert sizes(filled(4_097)) == (2, [8_192])


def test_tiers_are_merged_until_each_is_twice_as_large_as_the_next() -> None:
    assert sizes(filled(2 * 4_096)) == (0, [16_384])
    assert sizes(filled(3 * 4_096)) == (0, [16_384, 8_192])
    assert sizes(filled(7 * 4_096)) == (0, [32_768, 16_384, 8_192])
    assert sizes(filled(8 * 4_096)) == (0, [65_536])
