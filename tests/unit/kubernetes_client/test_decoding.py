"""Objects that keep what a watch, or a list, said of them."""

import msgspec

from tests.kube.client import Object
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.kubernetes_client.decoding import read_change, read_page


def a_claim(name: str, **status: object) -> Object:
    request = {"name": "gpu", "exactly": {"capacity": {"requests": {"milli": "1"}}}, "odd": name}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}, "status": status}


def test_claim_of_a_part_keeps_what_list_and_watch_said_of_it_until_it_has_a_device() -> None:
    open_, given = a_claim("a"), a_claim("b", allocation={"devices": {"results": []}})
    page, unread = read_page(msgspec.json.encode({"items": [open_, given, {"metadata": 1}]}), ResourceClaim)
    assert page.items is not None
    assert [msgspec.json.decode(each.text or b"null") for each in page.items] == [open_, None]
    assert len(unread) == 1
    assert msgspec.json.decode(read_change(msgspec.Raw(msgspec.json.encode(open_)), ResourceClaim).text) == open_
