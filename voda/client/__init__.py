"""A Python client of voda, sync and async; it needs the standard library alone.

    from voda.client import Client, Program

    client = Client()  # the voda of this machine, or the one that VODA_SERVER names
    job = client.submit(Program(["python", "train.py"], workers="1-4")).job
    for line in client.logs(job, follow=True):
        print(line)
    print(client.wait(job).phase)

In reading order: `client` (the methods), `documents` (what they submit), `records` (what they return) and `decoding`;
`async_client` (the same methods for asyncio) and `async_http`; `target` finds the server, `http` sends requests,
repeats those that can be repeated and follows streams, `job_output` makes lines of them, `connection` makes one
exchange, `sse` reads server-sent events, `errors` turns refusals into exceptions.

Rule: nothing here imports more of voda than errors, settings, time and voda.programs, nor any other library.
"""

from voda.client.async_client import AsyncClient
from voda.client.client import Client
from voda.client.errors import ClientClosed, RetryLater, ServerUnreachable, WaitTimeout
from voda.client.records import (
    ArrayPlace,
    Event,
    Forecast,
    Identity,
    IgnoredField,
    Job,
    JobDependency,
    Jobs,
    Progress,
    Replica,
    Settings,
    Submission,
)
from voda.domain.errors import (
    AlreadyExists,
    InvalidField,
    InvalidInput,
    NotAllowed,
    NotFound,
    PermanentError,
    TransientError,
    VersionConflict,
    VodaError,
    WrongState,
)
from voda.programs.program import Program

__all__ = [
    "AlreadyExists",
    "ArrayPlace",
    "AsyncClient",
    "Client",
    "ClientClosed",
    "Event",
    "Forecast",
    "Identity",
    "IgnoredField",
    "InvalidField",
    "InvalidInput",
    "Job",
    "JobDependency",
    "Jobs",
    "NotAllowed",
    "NotFound",
    "PermanentError",
    "Program",
    "Progress",
    "Replica",
    "RetryLater",
    "ServerUnreachable",
    "Settings",
    "Submission",
    "TransientError",
    "VersionConflict",
    "VodaError",
    "WaitTimeout",
    "WrongState",
]
