"""What is promised of voda.client: its fields are those of the server, of types that fit, and it stands alone."""

import subprocess
import sys
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import UnsetType

from tests.wire import a_wire_job
from voda.api.schemas.base import WarningView
from voda.api.schemas.events import EventView
from voda.api.schemas.jobs import (
    ArrayTaskView,
    DependencyView,
    ForecastView,
    JobList,
    JobView,
    ProgressView,
    SubmissionView,
    WorkerView,
)
from voda.api.schemas.pools import SettingsView
from voda.application.change_job import JobChange
from voda.application.change_settings import SettingsChange
from voda.auth.callers import Caller
from voda.client import client, records
from voda.client.decoding import decode
from voda.domain.state import ParameterValue

RECORDS: list[tuple[type, type]] = [
    (records.Job, JobView),
    (records.Replica, WorkerView),
    (records.Progress, ProgressView),
    (records.Forecast, ForecastView),
    (records.JobDependency, DependencyView),
    (records.ArrayPlace, ArrayTaskView),
    (records.JobsPage, JobList),
    (records.Submission, SubmissionView),
    (records.IgnoredField, WarningView),
    (records.Event, EventView),
    (records.Settings, SettingsView),
    (records.Identity, Caller),
    (client.JobChanges, JobChange),
    (client.SettingsChanges, SettingsChange),
]
VIEWS = dict(RECORDS)


def shape(kind: Any) -> Any:
    """Return a type as it looks in JSON; what may be absent or null is (shape, None)."""
    if kind == ParameterValue or kind is Any:
        return Any
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return str
    if origin in (Union, types.UnionType):
        others = [one for one in arguments if one not in (type(None), UnsetType)]
        # Records of several kinds are objects, whatever is in them.
        other = shape(others[0]) if len(others) == 1 else (dict, Any)
        return other if UnsetType in arguments else (other, None)
    if origin is tuple:
        return (tuple, shape(arguments[0]))
    if origin is Mapping:
        return (dict, shape(arguments[1]))
    return VIEWS.get(kind, kind)


@pytest.mark.parametrize(("record", "view"), RECORDS, ids=lambda kind: kind.__name__)
def test_fields_of_the_client_are_fields_of_the_server(record: type, view: type) -> None:
    ours, theirs = get_type_hints(record), get_type_hints(view)
    assert set(ours) <= set(theirs)
    for name, kind in ours.items():
        expected, known = shape(theirs[name]), shape(kind)
        assert known in (expected, (expected, None)), name


def test_job_as_the_server_sends_it_is_read_with_every_field() -> None:
    sent = a_wire_job("digits", on=("n1", "n2"), epochs=20, epochs_done=3.5, metrics={"loss": 0.5})
    job = decode(msgspec.json.encode(sent), records.Job)
    assert [replica.node for replica in job.workers] == ["n1", "n2"]
    assert (job.progress.epochs_done, job.progress.metrics, job.submitted_at) == (3.5, {"loss": 0.5}, sent.submitted_at)


def test_client_when_imported_needs_the_standard_library_alone() -> None:
    # -S: no site-packages, so that any other library would be missing.
    code = "import sys; sys.path.insert(0, sys.argv[1]); import voda.client; voda.client.Client('http://a', 't')"
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
