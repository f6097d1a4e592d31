"""What is promised of voda.client: what it can change is what the server takes, and it needs little to stand on."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import UnsetType

from tests.wire import a_wire_job
from voda.application.change_job import JobPatch
from voda.client import client
from voda.client.decoding import decode
from voda.domain.settings import ParameterValue
from voda.wire.jobs import JobView

CHANGES: list[tuple[type, type]] = [(client.JobPatchFields, JobPatch)]


def shape(kind: Any) -> Any:
    """Return a type as it looks in JSON, where it is given."""
    if kind == ParameterValue or kind is Any:
        return Any
    origin, arguments = get_origin(kind), get_args(kind)
    if UnsetType in arguments:
        (other,) = (one for one in arguments if one is not UnsetType)
        return shape(other)
    return (dict, shape(arguments[1])) if origin is Mapping else kind


@pytest.mark.parametrize(("offered", "taken"), CHANGES, ids=lambda kind: kind.__name__)
def test_what_the_client_can_change_the_server_takes(offered: type, taken: type) -> None:
    ours, theirs = get_type_hints(offered), get_type_hints(taken)
    assert {name: shape(kind) for name, kind in ours.items()} == {name: shape(theirs[name]) for name in ours}


def test_job_as_the_server_sends_it_is_read_with_every_field() -> None:
    sent = a_wire_job("digits", on=("n1", "n2"), epochs=20, epochs_done=3.5, metrics={"loss": 0.5})
    assert decode(msgspec.json.encode(sent), JobView) == sent


def test_client_when_imported_needs_msgspec_alone() -> None:
    # -S: no site-packages, so that any other library would be missing.
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]; sys.path.append(sys.argv[2]); import msgspec; sys.path.pop();"
        " import voda.client; voda.client.Client('http://a', 't')"
    )
    roots = [str(Path(__file__).resolve().parents[2]), str(Path(msgspec.__file__).resolve().parents[1])]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, *roots], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
