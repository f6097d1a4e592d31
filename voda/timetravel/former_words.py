"""Reasons of plans in the words of older logs, put into those of today, so that verification compares what they say.

Rule: the log is never changed; a rule here is never removed, and changes no reason in today's words.
"""

import re
from collections.abc import Callable
from typing import Final

from voda.policies.toolkit.allocation import sharing_text
from voda.text import counted, number_are

_Rewrite = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def _workers(text: str) -> str:
    return counted(int(text), "worker")


_REWRITES: Final[tuple[_Rewrite, ...]] = (
    (re.compile(r"^keeps (\d+)(?=$|;)"), lambda was: f"keeps {_workers(was[1])}"),
    (re.compile(r"^starts on (\d+)(?=[,:])"), lambda was: f"starts with {_workers(was[1])}"),
    (
        re.compile(r"^(grown|shrunk) (\d+) -> (\d+)(?=:)"),
        lambda was: f"{was[1]} from {int(was[2]):,} to {_workers(was[3])}",
    ),
    (re.compile(r"^kept at (\d+)(?=:)"), lambda was: f"kept at {_workers(was[1])}"),
    (re.compile(r"^shrunk to (\d+) only(?=:)"), lambda was: f"shrunk to {_workers(was[1])} only"),
    (re.compile(r"^runs at (\d+)(?=:)"), lambda was: f"runs with {_workers(was[1])}"),
    (
        re.compile(r"\bneeds (\d+), (\d+) free\b"),
        lambda was: f"needs {counted(int(was[1]), 'GPU')}, {number_are(int(was[2]))} free",
    ),
    (
        re.compile(r"\b(\d+) of (\d+) jobs share (\d+) GPUs, ([a-z ]+ first)"),
        lambda was: sharing_text(int(was[1]), int(was[2]), int(was[3]), was[4]),
    ),
    (
        re.compile(r"(needs room for [^,]+), the nodes (that take it )?have it for (\d+)"),
        lambda was: f"{was[1]}, and the nodes {was[2] or ''}have room for {was[3]}",
    ),
    (
        re.compile(r"\bof (\d+) planned workers at work\b"),
        lambda was: f"of {counted(int(was[1]), 'planned worker')} at work",
    ),
    (
        re.compile(r"\bcompacted, (\d+) jobs pending\b"),
        lambda was: f"compacted, while {counted(int(was[1]), 'job')} cannot start",
    ),
    (re.compile(r"\b(\d{4,}) (worker|GPU|job|task)s\b"), lambda was: counted(int(was[1]), was[2])),
    (
        re.compile(r"\bbest total speedup ([\d.]+) on (\d+) GPUs\b"),
        lambda was: f"best total speedup {was[1]} on {counted(int(was[2]), 'GPU')}",
    ),
)


def in_words_of_today(reason: str) -> str:
    """Return the reason of a plan as a plan of today gives it; one in today's words stays as it is."""
    for former, present in _REWRITES:
        reason = former.sub(present, reason)
    return reason
