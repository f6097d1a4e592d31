"""The names that `voda.client` offers: the records are those of the API, less the word View."""

from voda.auth.callers import Caller as Identity
from voda.client.async_client import AsyncClient
from voda.client.client import Client
from voda.client.errors import ClientClosed, RetryLater, ServerUnreachable, WaitTimeout
from voda.client.exec.session import ExecResult
from voda.client.records import Jobs
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
from voda.domain.settings import Settings
from voda.programs.program import Program
from voda.wire.base import WarningView as IgnoredField
from voda.wire.events import EventView as Event
from voda.wire.jobs import ArrayTaskView as ArrayPlace
from voda.wire.jobs import DependencyView as JobDependency
from voda.wire.jobs import ForecastView as Forecast
from voda.wire.jobs import JobView as Job
from voda.wire.jobs import ProgressView as Progress
from voda.wire.jobs import SubmissionView as Submission
from voda.wire.jobs import WorkerView as Replica

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
