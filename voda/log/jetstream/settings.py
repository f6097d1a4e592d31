"""The two streams of a log: creates them, and refuses settings that may lose events.

Rule: nothing is appended to a stream that may drop, expire or overwrite messages; the error names the setting, its
value and the expected value. Only `voda log migrate` creates and changes streams.
"""

import asyncio
import json
import logging
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from voda.domain.errors import InvalidInput, LogTooNew, NotALog
from voda.log.jetstream.messages import FORMAT
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream
from voda.log.jetstream.transport.url import NatsLocation

OLDEST_SERVER = (2, 11)
"""The first version that returns messages in batches."""
_MARK = "voda_log"
"""Key in a stream's metadata; the value is the format of its messages."""
_CLUSTER_REPLICAS = 3
_MONITOR_S = 5.0

_log = logging.getLogger(__name__)

_Values = Mapping[str, tuple[object, ...]]

# The values that are safe, as JetStream's interface spells them; None: a stream does not report what is not set.
_SAFE: _Values = {
    "retention": ("limits", None),
    "storage": ("file",),
    "max_msgs": (-1, None),
    "max_age": (0, None),
    "persist_mode": ("", "default", None),
    **dict.fromkeys(("no_ack", "sealed", "allow_rollup_hdrs", "allow_msg_ttl"), (False, None)),
    **dict.fromkeys(("allow_msg_schedules", "allow_msg_counter"), (False, None)),
    **dict.fromkeys(("mirror", "subject_transform"), (None,)),
    "sources": (None, []),
}
_SAFE_LOG: _Values = {**_SAFE, "max_msgs_per_subject": (-1, None), "deny_delete": (True,)}
_SAFE_MARKS: _Values = {**_SAFE, "max_msgs_per_subject": (1,)}
_SETTINGS: Mapping[str, object] = {
    "metadata": {_MARK: str(FORMAT)},
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "allow_direct": True,
}


def marks_of(stream: str) -> str:
    """Return the name of the stream beside the log's, with the records of LogMarks."""
    return f"{stream}_marks"


def events_subject(stream: str) -> str:
    """Return the subject of the log's messages."""
    return f"{stream}.events"


def grown_subject(stream: str) -> str:
    """Return the subject on which the server notifies of new messages."""
    return f"{stream}_grown"


async def migrate(connection: NatsConnection) -> None:
    """Create the streams of a log, or update existing ones to the current settings.

    Raises:
        NotALog: a stream of that name belongs to another application.
        InvalidInput: the servers cannot do this.
    """
    _refuse_old_server(connection)
    for wanted, safe in _streams(connection):
        await _make(connection, wanted, safe)
    # A warning is enough here; to open such a log for writing is refused.
    await _check_sync(replace(connection.location, sync="any"))


async def check(connection: NatsConnection, *, read_only: bool) -> None:
    """Raise unless this version reads such a log, and its streams, if it is to be written to, may lose no events."""
    _refuse_old_server(connection)
    for wanted, safe in _streams(connection):
        config: dict[str, Any] = (await MessageStream(connection, wanted["name"]).api("INFO"))["config"]
        _refuse_foreign(connection, config)
        if not config.get("allow_direct"):
            raise InvalidInput(
                f"{connection.place}: the stream {wanted['name']} answers no reader: expected allow_direct=true, got"
                f" false; run 'voda log migrate {connection.place}'"
            )
        if not read_only:
            _refuse_settings(connection, config, safe)
            _refuse_replicas(connection, config)
    if not read_only:
        await _check_sync(connection.location)


async def _make(connection: NatsConnection, wanted: dict[str, Any], safe: _Values) -> None:
    stream = MessageStream(connection, wanted["name"])
    try:
        found = (await stream.api("INFO"))["config"]
    except NotALog:
        wanted["num_replicas"] = connection.location.replicas or (_CLUSTER_REPLICAS if connection.is_cluster else 1)
        await stream.api("CREATE", wanted)
        return
    _refuse_foreign(connection, found)
    # An update must not change a setting that protects events, in either direction.
    _refuse_settings(connection, found, safe)
    replicas = connection.location.replicas or found["num_replicas"]
    changed = {**found, **wanted, "num_replicas": replicas}
    if changed != found:
        await stream.api("UPDATE", changed)


def _streams(connection: NatsConnection) -> Sequence[tuple[dict[str, Any], _Values]]:
    """Return the settings of the log's stream and of that beside it, each with the values of others that are safe."""
    name = connection.location.stream
    subject, marks = events_subject(name), marks_of(name)
    log = {
        **_SETTINGS,
        "name": name,
        "subjects": [subject],
        "description": "event log of voda",
        "deny_delete": True,
        "republish": {"src": subject, "dest": grown_subject(name), "headers_only": True},
    }
    beside = {
        **_SETTINGS,
        "name": marks,
        "subjects": [f"{marks}.>"],
        "description": "snapshots and index of an event log of voda",
        "discard_new_per_subject": False,
        "max_msgs_per_subject": 1,
    }
    return (log, _SAFE_LOG), (beside, _SAFE_MARKS)


def _refuse_old_server(connection: NatsConnection) -> None:
    version = connection.server_version
    numbers = version.split("-")[0].split(".")[:2]
    if not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise InvalidInput(f"{connection.place}: nats-server {version or '?'} is too old, expected {oldest} or newer")


def _refuse_foreign(connection: NatsConnection, config: Mapping[str, Any]) -> None:
    mark = (config.get("metadata") or {}).get(_MARK, "")
    if not mark.isdigit():
        raise NotALog(
            f"{connection.place}: the stream {config['name']} belongs to another application: give voda a name of its"
            " own at the URL's end, such as nats://host/voda"
        )
    if int(mark) > FORMAT:
        raise LogTooNew(
            f"{connection.place} was written by a newer voda (format {mark}, this version knows up to {FORMAT}):"
            " upgrade voda to open it"
        )


def _refuse_settings(connection: NatsConnection, config: Mapping[str, Any], safe: _Values) -> None:
    for setting, expected in safe.items():
        if (got := config.get(setting)) not in expected:
            raise InvalidInput(
                f"{connection.place}: the stream {config['name']} may lose events: expected"
                f" {setting}={json.dumps(expected[0])}, got {json.dumps(got)}; correct it with the nats program,"
                " then run 'voda log migrate'"
            )
    if config.get("max_bytes", -1) > 0 and config.get("discard") != "new":
        raise InvalidInput(
            f"{connection.place}: the stream {config['name']} drops its oldest events when it is full: expected"
            " max_bytes=-1 or discard=new, got discard=old; correct it with the nats program"
        )


def _refuse_replicas(connection: NatsConnection, config: Mapping[str, Any]) -> None:
    place, replicas = connection.place, int(config["num_replicas"])
    if replicas == 2:
        raise InvalidInput(f"{place}: expected 1, 3 or 5 replicas, got 2: if one is lost, both stop; use replicas=3")
    asked = connection.location.replicas
    if asked and asked != replicas:
        raise InvalidInput(
            f"{place}: the stream {config['name']} has {replicas} replicas, the URL asks for {asked}: run"
            f" 'voda log migrate' with that URL to change it"
        )
    if replicas == 1 and connection.is_cluster:
        _log.warning(
            "%s: the log is on one server of the cluster alone (stream %s, replicas=1) and is lost with it;"
            " run 'voda log migrate' with ?replicas=3",
            place,
            config["name"],
        )


async def _check_sync(where: NatsLocation) -> None:
    if not where.monitor:
        _log.warning(
            "%s: it is not known whether the servers write to the disk before they answer: set"
            " 'jetstream { sync_interval: always }' on each, and add ?monitor=http://host:8222 to the URL to have it"
            " checked",
            where.place,
        )
    for url in where.monitor:
        await _check_sync_of(where, url)


async def _check_sync_of(where: NatsLocation, url: str) -> None:
    try:
        config = (await asyncio.to_thread(_varz, url)).get("jetstream", {}).get("config", {})
    except (OSError, ValueError) as error:
        _log.warning("%s: %s does not report sync_interval: %s", where.place, url, getattr(error, "reason", error))
        return
    if config.get("sync_always"):
        return
    if "sync_interval" not in config:
        # A server that was just started reports its settings only once it has read its data.
        _log.warning("%s: %s does not report sync_interval yet", where.place, url)
        return
    seconds = float(config["sync_interval"]) / 1e9
    problem = (
        f"{where.place}: the server at {url} writes to the disk only every {seconds:g} s, so a power cut loses events"
        " that were answered: expected sync_interval=always in the server's jetstream settings"
    )
    if where.sync != "any":
        raise InvalidInput(f"{problem}; or add ?sync=any to the URL to take the risk")
    _log.warning("%s", problem)


def _varz(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/varz", timeout=_MONITOR_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
