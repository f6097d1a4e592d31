"""Pools and their settings as the API shows them.

Rule: a revision is a digest of what is shown, so that equal revisions mean equal contents.
"""

from hashlib import sha256

import msgspec

from voda.api.schemas.pools import PoolView, SettingsView
from voda.domain.job import Phase
from voda.domain.state import ClusterState, Settings

_DIGITS = 16


def settings_of(settings: Settings) -> SettingsView:
    """Return the settings in force."""
    return msgspec.convert({name: getattr(settings, name) for name in SettingsView.__struct_fields__}, SettingsView)


def pool_of(view: ClusterState) -> PoolView:
    """Return a pool at a glance."""
    running = sum(1 for job in view.jobs.values() if job.phase is Phase.RUNNING)
    pool = PoolView(
        name=view.pool,
        nodes=len(view.nodes),
        gpus=view.capacity_gpus,
        used_gpus=sum(job.gpus for job in view.jobs.values()),
        waiting=len(view.jobs) - running,
        running=running,
        plan=view.plan.number,
        settings=settings_of(view.settings),
        revision="",
    )
    return msgspec.structs.replace(pool, revision=revision_of(pool))


def revision_of(record: msgspec.Struct) -> str:
    """Return what changes with every change of the record."""
    return sha256(msgspec.json.encode(record)).hexdigest()[:_DIGITS]
