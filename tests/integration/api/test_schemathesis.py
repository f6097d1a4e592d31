"""Every operation, asked what its document allows and what it forbids, by a tool that knows only the document.

Rule: nothing breaks, and every answer is one that the document announces, of the form that it announces.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.builders import a_spec
from tests.integration.api.test_logs import KeptOutputs
from tests.integration.api.test_plans import a_leader, decided
from tests.service import Service, a_service
from voda.auth.tokens import Authenticator, Role
from voda.clock import SystemClock
from voda.events.types import JobSubmitted, WorkerStarted

_DEADLINE_S = 600.0
_CASES = 10_000
_RUNS = (
    ("examples,coverage", 1, 1, 1_750),
    ("stateful", 3, 300, 2_000),
    ("fuzzing", 1, 105, 3_125),
    ("fuzzing", 2, 105, 3_125),
)
"""Phases, seed, examples of each operation, cases at least; several, so that each takes a minute, and they go in
parallel."""
# What a document can bound, it does; beyond that, these refuse what only sense forbids: a manifest without a kind, a
# wish beyond the job's maximum, a moment that is none, an empty key, a name of several words, a continue token made up,
# a position beyond the end, a reason of several lines, a number of bytes with a fraction of nothing (1.0).
_REFUSE_BY_SENSE = (
    "submitJob",
    "createTraining",
    "deleteTraining",
    "setAlgorithm",
    "setRatelimit",
    "changeJob",
    "deleteJob",
    "deleteArray",
    "reportProgress",
    "listJobs",
    "explainJob",
    "listEvents",
    "rerunJob",
    "getUsage",
    "getState",
    "listStateChanges",
    "getTimeline",
    "askWhatIf",
    "getLogs",
    "haltJob",
    "drainNode",
    "changeSettings",
    # A file of virtual clusters whose quotas do not fit.
    "applyVirtualClusters",
    # It is a WebSocket.
    "runCommand",
)
_CONFIG = """
# A position beyond the end of the log is one of another log.
parameters = { "query.after" = 1 }

[checks]
# A job that was deleted is canceled; it stays to be looked at.
use_after_free.enabled = false
# Who shows a revision that is not there is told so first.
negative_data_rejection.expected-statuses = ["4xx"]
# Nothing is kept of a job's folder here.
ensure_resource_availability.enabled = false
positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "429"]

# In a query, what is no list or no number is a text, such as false or null.
[[operations]]
include-operation-id = ["listJobs", "listFolders"]
checks.negative_data_rejection.enabled = false

[[operations]]
include-operation-id = "listEvents"
# A stream has no end, and its beginning is of this log alone.
parameters = { watch = false, "header.Last-Event-ID" = "1" }

[[operations]]
include-operation-id = "getState"
parameters = { watch = false }
"""


def _config(folder: Path) -> Path:
    senses = (
        f'[[operations]]\ninclude-operation-id = "{name}"\nchecks.positive_data_acceptance.enabled = false\n'
        for name in _REFUSE_BY_SENSE
    )
    file = folder / "schemathesis.toml"
    file.write_text(_CONFIG + "\n".join(senses))
    return file


async def _populate(service: Service) -> None:
    """Fill the log, so that there is something behind most paths."""
    leader = await a_leader(service)
    for job_id in ("a", "b", "c"):
        await service.happens(JobSubmitted(spec=a_spec(job_id, name=job_id, user="ann", manifest={"kind": "MPIJob"})))
        await decided(service, leader)
    await service.happens(WorkerStarted(job_id="a", workers={0: "n1"}))


async def _asked(role: str, phases: str, examples: int, tmp_path: Path, *, seed: int = 1) -> int:
    """Let the tool ask, fail where it found anything, and return how many cases it made."""
    clock, outputs = SystemClock(), KeptOutputs()
    outputs.is_over = True
    access = Authenticator.open(tmp_path, clock)
    token = (tmp_path / "admin.token").read_text().strip()
    if role != "admin":
        kind: Role = "user" if role == "user" else "viewer"
        token = access.add("ann", kind)
    async with a_service(access=access, clock=clock, outputs=outputs) as service:
        await _populate(service)
        # fmt: off
        tool = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(_config(tmp_path)),
            "run", f"{service.url}/openapi.json", "--header", f"Authorization: Bearer {token}",
            "--phases", phases, "--seed", str(seed), "--max-examples", str(examples), "--continue-on-failure",
            "--request-timeout", "30", "--generation-database", "none", "--no-color",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
        )
        # fmt: on
        try:
            async with asyncio.timeout(_DEADLINE_S):
                told, _ = await tool.communicate()
        finally:
            if tool.returncode is None:
                tool.kill()
                await tool.wait()
    text = told.decode(errors="replace")
    assert tool.returncode == 0, text
    made = re.search(r"(\d+) generated", text)
    assert made is not None, text
    return int(made[1])


async def test_api_when_a_viewer_asks_a_few_things_then_answers_as_documented(tmp_path: Path) -> None:
    assert await _asked("viewer", "fuzzing", 1, tmp_path) >= 32


@pytest.mark.slow
@pytest.mark.parametrize(("phases", "seed", "examples", "at_least"), _RUNS)
async def test_api_when_an_admin_asks_anything_then_answers_as_documented(
    phases: str, seed: int, examples: int, at_least: int, tmp_path: Path
) -> None:
    assert sum(least for *_, least in _RUNS) == _CASES
    assert await _asked("admin", phases, examples, tmp_path, seed=seed) >= at_least


@pytest.mark.slow
async def test_api_when_a_user_asks_anything_then_answers_as_documented(tmp_path: Path) -> None:
    assert await _asked("user", "fuzzing", 4, tmp_path) >= 100
