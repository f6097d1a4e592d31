"""A log of an earlier version that holds jobs whose variables expand to more than any process may get."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.local_jobs import base_environment
from tests.manifests import an_mpi_job
from tests.waiting import until
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.domain.job import Phase
from voda.events.envelope import Fact
from voda.events.types import JobSubmitted
from voda.log.factory import open_store
from voda.manifests.parse import parse
from voda.projections.jobs.record_text import explanation_text

_LINKS = {f"A{link}": f"$(A{link - 1})" * 10 for link in range(1, 12)}
BOMB = [{"name": name, "value": value} for name, value in {"A0": "x" * 100, **_LINKS}.items()]


def options(home: Path) -> MachineOptions:
    """Return those of a `voda up` with four slots."""
    return MachineOptions(home=home, environment=base_environment(), port=0, slots=4, settings={"ratelimit_s": 0.0})


async def record(home: Path, *names: str) -> None:
    """Write submissions into the log as an earlier version did, which did not expand what it accepted."""
    store = await open_store(str(home / "voda.db"))
    for at, name in enumerate(names):
        plain = a_job(name, [])
        # A parsed manifest's spec holds what the user wrote; the old version let the other pass.
        spec = replace(parse(plain).spec, manifest=a_job(name, BOMB) if "bomb" in name else plain)
        fact = Fact(data=JobSubmitted(spec=spec), event_id=f"e{at}", recorded_at=1_700_000_000.0, actor="ann")
        await store.append(f"job.{name}", 0, [fact])
    await store.close()


def a_job(name: str, env: list[dict[str, Any]]) -> dict[str, Any]:
    return an_mpi_job(launcher={"command": ["true"], "args": [], "env": env}, metadata={"name": name}, replicas=1)


def is_in(service: MachineService, name: str, phase: Phase) -> bool:
    job = service.view.job_registry.job(name)
    return job is not None and job.phase is phase


async def test_old_job_when_it_expands_to_terabytes_fails_with_its_reason_and_holds_nothing_up(tmp_path: Path) -> None:
    await record(tmp_path, "bomb-1", "digits", "bomb-2")
    # All of it: what expands the text would not come back.
    async with asyncio.timeout(60), running(options(tmp_path)) as service:
        await until(partial(is_in, service, "digits", Phase.COMPLETED))
        for name in ("bomb-1", "bomb-2"):
            await until(partial(is_in, service, name, Phase.FAILED))
            job = service.view.job_registry.job(name)
            assert job is not None
            assert explanation_text(job).startswith(
                "launcher could not run: variable A4: expected 131072 bytes or less once $(VAR) is expanded"
            )
    async with asyncio.timeout(60), running(options(tmp_path)) as service:
        assert is_in(service, "bomb-1", Phase.FAILED)
