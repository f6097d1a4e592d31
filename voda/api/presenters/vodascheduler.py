"""The formats of the ancestor, heyfey/vodascheduler: its table of jobs, its algorithms, its bodies; pure.

Rule: scripts cut columns and words out of its texts, so these stay the same to the character.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from voda.domain.errors import InvalidInput
from voda.projections.jobs.record import JobRecord

ALGORITHMS: Final[Mapping[str, str]] = {
    "FIFO": "fifo",
    "ElasticFIFO": "elastic-fifo",
    "SRJF": "srjf",
    "ElasticSRJF": "elastic-srjf",
    "Tiresias": "tiresias",
    "ElasticTiresias": "elastic-tiresias",
    "FfDLOptimizer": "ffdl",
    "AFS-L": "afs-l",
}
"""Its spelling -> ours."""
_ROW: Final = "{:<60} {:<10} {:<10} {:<25} {:<10} {:<10} {:<10}\n"
HEAD: Final = _ROW.format("NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL")


def row(record: JobRecord, now: float) -> str:
    """Return a job's line; times are carried on to `now`."""
    job = record.job
    # An ended job's times stand still, even if a worker outlived it.
    at = now if record.is_live else job.counted_at
    waiting_s, running_s = job.waiting_by(at), job.running_by(at)
    return _ROW.format(
        job.spec.job_id,
        job.phase,
        job.replicas,
        job.spec.pool,
        span(waiting_s),
        span(running_s),
        span(waiting_s + running_s),
    )


def policy_of(body: bytes) -> str:
    """Return the policy that an algorithm's name in the body means; a name of ours means itself."""
    algorithm = text_of(body)
    spelled = {name.lower(): policy for name, policy in ALGORITHMS.items()}
    return spelled.get(algorithm.lower(), algorithm)


def text_of(body: bytes) -> str:
    """Return a body that is one word: a JSON string, as the ancestor's documents wrote it, or the bare word."""
    try:
        text = body.decode().strip()
        word = msgspec.json.decode(text, type=str) if text.startswith('"') else text
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f'the body is no name: expected one word, bare or in double quotes ("name"): {error}'
        ) from None
    if not word or any(character.isspace() for character in word):
        raise InvalidInput('the body is no name: expected one word, bare or in double quotes ("name")')
    return word


def seconds_of(body: bytes) -> float:
    """Return a body that is a number of seconds."""
    try:
        seconds = float(body.decode().strip().strip('"'))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InvalidInput("the body is no number of seconds: expected one such as 30")
    return seconds


def dated(manifest: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    """Return the manifest under a name with a timestamp, so that one file can be submitted many times.

    The name in the launcher's environment (JOB_NAME) follows, as programs write their metrics under it.
    """
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(name := metadata.get("name"), str):
        # The parser of manifests says what is wrong with it.
        return dict(manifest)
    renamed = f"{name}-{stamp}"
    return {**_renamed_in_env(manifest, renamed), "metadata": {**metadata, "name": renamed}}


def _renamed_in_env(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if value.get("name") == "JOB_NAME" and "value" in value:
            return {**value, "value": name}
        return {key: _renamed_in_env(item, name) for key, item in value.items()}
    return [_renamed_in_env(item, name) for item in value] if isinstance(value, list) else value


def span(seconds: float) -> str:
    """Return a span as Go prints it, rounded to seconds: 0s, 1m28s, 1h0m5s."""
    whole = max(0, math.floor(seconds + 0.5))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
