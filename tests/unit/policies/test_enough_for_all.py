"""What is known of all jobs together changes no answer of a policy."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from voda.domain.groups import JobGroups
from voda.policies import POLICIES


@given(st.integers())
def test_answer_is_the_same_where_the_groups_of_jobs_are_known(seed: int) -> None:
    random = Random(seed)
    jobs = [
        a_job(
            f"j{n}",
            min_replicas=random.randrange(1, 3),
            max_replicas=random.randrange(3, 5),
            gpus_per_replica=random.choice((1, 2)),
            submitted_at=float(random.randrange(3)),
            is_canceling=random.random() < 0.1,
        )
        for n in range(6)
    ]
    view = a_state(jobs=jobs, nodes=[a_node(f"n{n}", gpus=8) for n in range(random.randrange(8))])
    known = replace(view, groups=JobGroups.of(view.jobs))
    for policy in POLICIES.values():
        one, other = policy.allocate(view, 9.0), policy.allocate(known, 9.0)
        assert (one.replicas, dict(one.reasons)) == (other.replicas, dict(other.reasons))
