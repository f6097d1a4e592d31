"""A Python client of voda, sync and async; it needs the standard library alone.

    from voda.client import Client

    client = Client()  # the voda of this machine, or the one that VODA_SERVER names
    job = client.submit(Path("job.yaml")).job
    for line in client.logs(job, follow=True):
        print(line)
    print(client.wait(job).phase)

In reading order: `client` (the methods), `async_client` (the same, in threads), `records` (what they return) and
`decoding`; `target` finds the server, `http` sends requests, repeats those that can be repeated and follows streams,
`connection` makes one exchange, `sse` reads server-sent events, `errors` turns refusals into exceptions.

Rule: nothing here imports more of voda than errors, settings and time, nor any other library.
"""

from voda.client.async_client import AsyncClient
from voda.client.client import Client
from voda.client.errors import ClientClosed, RetryLater, ServerUnreachable, WaitTimeout
from voda.client.records import (
    ArrayTask,
    Dependency,
    Event,
    Forecast,
    Identity,
    IgnoredField,
    Job,
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

__all__ = [
    "AlreadyExists",
    "ArrayTask",
    "AsyncClient",
    "Client",
    "ClientClosed",
    "Dependency",
    "Event",
    "Forecast",
    "Identity",
    "IgnoredField",
    "InvalidField",
    "InvalidInput",
    "Job",
    "Jobs",
    "NotAllowed",
    "NotFound",
    "PermanentError",
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
