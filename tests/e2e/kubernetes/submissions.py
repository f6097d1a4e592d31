"""What somebody may ask voda for, drawn by chance, and how it is asked for.

Rule: what is drawn depends on the given chance alone.
"""

import random
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from tests.kube.client import Object
from tests.kube.kubelet import RUNS_FOR_S
from tests.kube.objects import a_pytorchjob, an_mpijob

AWAY: Final = (aiohttp.ClientError, TimeoutError, OSError)
"""What a server that is away comes to."""
_NAMES: Final = 12
"""Few, so that names come again."""
_ANSWER_S: Final = 8.0
_LAUNCHERS: Final = {"nodeSelector": {"role": "launchers"}}


@dataclass
class Submission:
    """One job that somebody asked for."""

    name: str
    kind: str
    uid: str = ""
    """Of the object, where it was made by kubectl."""
    job_id: str = ""
    """As the API answered, where it was submitted there."""
    is_unwanted: bool = False
    """Whether somebody canceled it or deleted its object since."""
    is_doubtful: bool = False
    """Whether somebody tried to, and does not know what came of it."""
    ends: bool = False
    """Whether its program ends by itself."""


def a_submission(chance: random.Random, namespace: str) -> tuple[Object, Submission]:
    """Draw a job, and what is known of it."""
    number, least = chance.randrange(_NAMES), chance.randint(1, 2)
    sizes = {"workers": least, "least": least, "most": least + chance.randint(0, 3)}
    if chance.random() < 0.25:
        name = f"torch-{number}"
        return a_pytorchjob(name, namespace, **sizes), Submission(name, "PyTorchJob")
    name, ends = f"mpi-{number}", chance.random() < 0.4
    notes = {RUNS_FOR_S: str(chance.randint(2, 10))} if ends else {}
    policy = {"backoffLimit": 1_000}
    job = an_mpijob(name, namespace, **sizes, policy=policy, launcher_notes=notes, launcher_spec=_LAUNCHERS)
    return job, Submission(name, "MPIJob", ends=ends)


async def answer_of(url: str, method: str, path: str, body: object, key: str) -> tuple[int, Any] | None:
    """Ask an API, and return status and answer; None: there is no answer."""
    limit, headers = aiohttp.ClientTimeout(_ANSWER_S), {"Idempotency-Key": key} if key else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(method, url + path, json=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json(content_type=None)
    except (*AWAY, ValueError):
        return None


def id_of(found: Object) -> str:
    """Return the id of the job that an object says it is of."""
    return str(found["metadata"].get("annotations", {}).get("voda.dev/job-id", ""))
