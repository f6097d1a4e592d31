"""The names that `voda.client` offers."""

from voda.client.async_client import AsyncClient
from voda.client.client import Client
from voda.client.errors import ClientClosed, RetryLater, ServerUnreachable, WaitTimeout
from voda.client.exec.session import ExecResult
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
    "ExecResult",
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
