"""What travels over HTTP: one frozen record per answer, shared by the server, the command line and OpenAPI.

Rule: all are imported from here, whichever module they live in.
"""

from voda.api.schemas.base import Asked, Wire
from voda.api.schemas.events import Event, EventList
from voda.api.schemas.explanations import Decision, Explanation, Shortage, Story
from voda.api.schemas.jobs import (
    Change,
    Forecast,
    Job,
    JobList,
    Progress,
    Report,
    Reported,
    ReportList,
    Submission,
    Warned,
    Worker,
)
from voda.api.schemas.pools import Node, NodeList, Plan, Pool, PoolList, Settings, SettingsChange
from voda.api.schemas.service import Page, Problem, Who

__all__ = [
    "Asked",
    "Change",
    "Decision",
    "Event",
    "EventList",
    "Explanation",
    "Forecast",
    "Job",
    "JobList",
    "Node",
    "NodeList",
    "Page",
    "Plan",
    "Pool",
    "PoolList",
    "Problem",
    "Progress",
    "Report",
    "ReportList",
    "Reported",
    "Settings",
    "SettingsChange",
    "Shortage",
    "Story",
    "Submission",
    "Warned",
    "Who",
    "Wire",
    "Worker",
]
