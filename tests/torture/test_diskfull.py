"""A full disk: refused in one sentence, nothing acknowledged lost, reading goes on, and writing once there is room."""

import msgspec
import pytest

from tests.needs import missing
from tests.torture.diskfull import Found, NoSmallDisk, run_in_namespace


def _found(store: str) -> Found:
    try:
        done = run_in_namespace("--store", store)
    except NoSmallDisk as error:
        missing(str(error))
    assert done.stdout, done.stderr
    return msgspec.json.decode(done.stdout, type=Found)


@pytest.mark.slow
@pytest.mark.usefixtures("postgres_server")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_full_disk_refuses_appends_and_goes_on_once_there_is_room(store: str) -> None:
    found = _found(store)
    assert found.problems == []
    assert found.is_read_while_full
    assert found.goes_on
    assert found.recorded >= found.acknowledged > 100
    assert "the disk is full" in found.refusals["StoreNotWritable"]


@pytest.mark.slow
@pytest.mark.usefixtures("nats_server")
@pytest.mark.parametrize("store", ["jetstream", "jetstream-limit"])
def test_full_disk_under_jetstream_refuses_appends_and_loses_nothing(store: str) -> None:
    found = _found(store)
    assert found.problems == []
    assert found.is_read_while_full
    assert found.recorded >= found.acknowledged > 100
    assert "cannot grow" in found.refusals["StoreNotWritable"]
    # A server whose disk was full takes no more until it is started again; a limit is for its operator to raise.
    assert found.goes_on or found.goes_on_restarted or store == "jetstream-limit"


@pytest.mark.slow
def test_service_on_a_full_disk_says_so_goes_on_reading_and_writes_once_there_is_room() -> None:
    found = _found("service")
    assert found.problems == []
    assert found.is_read_while_full
    assert found.goes_on
    [said] = found.refusals.values()
    assert "the disk is full" in said
