"""URLs of logs in NATS: `nats://[user:password@]host[:port][,host2[:port2]...][/STREAM][?option=value&...]`.

Rule: output for people and logs never has the password or the token.
"""

import re
import ssl
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from voda.domain.errors import InvalidInput

SCHEMES = ("nats", "tls")
DEFAULT_STREAM = "voda"
DEFAULT_PORT = 4222
REPLICAS = (1, 3, 5)
_OPTIONS = ("replicas", "creds", "ca", "monitor", "sync")
_SYNC = ("always", "any")
_EXPECTED = "nats://[user:password@]host[:port][,host2[:port2]]/STREAM"
_URL = re.compile(
    r"(?P<scheme>nats|tls)://(?:(?P<who>[^/?]*)@)?(?P<hosts>[^/?@]+)(?:/(?P<stream>[^/?]*))?(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+)(?::(?P<port>\d{1,5}))?")
# A stream's name becomes a token of subjects and the name of a folder.
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LARGEST_PORT = 65535


class NatsLocation(Struct, frozen=True, kw_only=True):
    """The parts of a log's URL."""

    scheme: str
    hosts: tuple[str, ...]
    """`host:port` of at least one server; the client discovers the others."""
    stream: str = DEFAULT_STREAM
    """Name of the JetStream stream."""
    user: str = ""
    password: str = ""
    token: str = ""
    replicas: int = 0
    """Number of servers that store the log; 0 = not given."""
    creds: str = ""
    """Path of a file of credentials (JWT and seed)."""
    ca: str = ""
    """Path of a file with the certificates of trusted authorities; empty = those of the system."""
    sync: str = "always"
    """"any": servers that answer before they have written to the disk are accepted, too."""
    monitor: tuple[str, ...] = ()
    """http://host:port of the servers' monitoring, which alone reports sync_interval."""

    @property
    def place(self) -> str:
        """The URL without password and options."""
        who = f"{self.user}@" if self.user else ""
        return f"{self.scheme}://{who}{','.join(self.hosts)}/{self.stream}"

    @property
    def servers(self) -> list[str]:
        """URLs of the servers, without secrets."""
        return [f"{self.scheme}://{host}" for host in self.hosts]

    @property
    def is_secret(self) -> bool:
        """Whether nothing may be said without TLS."""
        return self.scheme == "tls" or bool(self.ca)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings, or None; raises InvalidInput if the certificates cannot be read."""
        if not self.is_secret:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise InvalidInput(f"{self.place}: the certificates {self.ca} cannot be read: {error}") from error


def is_nats(location: object) -> bool:
    """Return whether a log's path or URL names NATS."""
    return isinstance(location, str) and location.partition("://")[0] in SCHEMES and "://" in location


def parse_url(url: str) -> NatsLocation:
    """Parse a URL; raises InvalidInput if it is no URL of a log in NATS."""
    place, found = _without_secrets(url), _URL.fullmatch(url)
    if not found:
        raise InvalidInput(f"{place!r} is no URL of a log in NATS: expected {_EXPECTED}")
    user, colon, password = (found["who"] or "").partition(":")
    options = _options(found["query"] or "", place)
    stream = found["stream"] or DEFAULT_STREAM
    if not _STREAM.fullmatch(stream):
        raise InvalidInput(f"{place!r}: a stream's name is made of letters, digits, '_' and '-', got {stream!r}")
    if (replicas := options.get("replicas", "0")) not in ("0", *map(str, REPLICAS)):
        raise InvalidInput(
            f"{place}: expected replicas=1, 3 or 5, got {replicas!r}"
            " (an even number survives no more failures than the odd one below it)"
        )
    if (sync := options.get("sync", "always")) not in _SYNC:
        raise InvalidInput(f"{place}: expected sync=always or sync=any, got {sync!r}")
    monitor = tuple(part.rstrip("/") for part in options.get("monitor", "").split(",") if part)
    if odd := next((part for part in monitor if not part.startswith(("http://", "https://"))), None):
        raise InvalidInput(f"{place}: expected monitor=http://host:8222, got {odd!r}")
    return NatsLocation(
        scheme=found["scheme"],
        hosts=tuple(_host(host, place) for host in found["hosts"].split(",")),
        stream=stream,
        # NATS takes a name without a password for a token.
        user=unquote(user) if colon else "",
        password=unquote(password),
        token="" if colon else unquote(user),
        replicas=int(replicas),
        creds=options.get("creds", ""),
        ca=options.get("ca", ""),
        sync=sync,
        monitor=monitor,
    )


def _options(query: str, url: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise InvalidInput(f"{url}: the URL's option {unknown[0]!r} is unknown, expected {', '.join(_OPTIONS)}")
    return options


def _host(text: str, place: str) -> str:
    found = _HOST.fullmatch(text)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if not found or not 0 < port <= _LARGEST_PORT:
        raise InvalidInput(f"{place!r}: expected host or host:port, got {text!r}")
    return f"{found['name']}:{port}"


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
