"""What pods ask for, in HiveD's words of today and of before."""

import re

import pytest

from tests.unit.hived.pods import a_group, a_pod
from voda.cells.gangs import GangRequest
from voda.domain.errors import InvalidInput
from voda.hived.pod_request import SCHEDULING_SPEC, read_request


def test_request_when_it_says_all_is_a_gang_of_its_members() -> None:
    pod = a_pod(
        "p",
        virtualCluster="b",
        priority=7,
        pinnedCellId="pin",
        leafCellType="gpu",
        leafCellNumber=2,
        lazyPreemptionEnable=True,
        ignoreK8sSuggestedNodes=False,
        gangReleaseEnable=True,
        affinityGroup=a_group("g", (1, 4), (2, 2)),
    )
    expected = GangRequest(
        name="g",
        virtual_cluster="b",
        members=((1, 4), (2, 2)),
        priority=7,
        leaf_type="gpu",
        pin="pin",
        yields=True,
        ignores_suggestions=False,
    )
    assert read_request(pod) == (expected, 2)


def test_request_when_it_names_no_group_is_a_gang_of_its_own() -> None:
    expected = GangRequest(name="team/p", virtual_cluster="a", members=((1, 4),))
    assert read_request(a_pod("p", leafCellNumber=4)) == (expected, 4)


def test_request_when_written_for_an_older_hived_is_understood() -> None:
    group = "{name: g, members: [{podNumber: 3, gpuNumber: 2}]}"
    text = f"virtualCluster: a\ngpuType: K80\ngpuNumber: 2\naffinityGroup: {group}"
    gang, leafs = read_request(a_pod("p", annotations={SCHEDULING_SPEC: text}))
    assert (gang.leaf_type, gang.members, leafs) == ("K80", ((3, 2),), 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "pod team/p has no annotation"),
        ("a: [", "no valid YAML"),
        ("- a", "expected `object`, got `array`"),
        ("priority: high", "priority: expected `int`, got `str`"),
        ("affinityGroup: {name: g, members: [{podNumber: x}]}", "affinityGroup.members"),
        ('affinityGroup: {name: "train#0", members: []}', "the affinity group cannot be called 'train#0'"),
    ],
)
def test_request_when_it_cannot_be_read_is_refused_with_the_place(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        read_request(a_pod("p", annotations={SCHEDULING_SPEC: text}))
