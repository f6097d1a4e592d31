"""A Python client of voda, sync and async.

    from voda.client import Client, Program

    client = Client()  # the voda of this machine, or the one that VODA_SERVER names
    job = client.submit(Program(["python", "train.py"], workers="1-4")).job
    for line in client.logs(job, follow=True):
        print(line)
    print(client.wait(job).phase)

In reading order: `public` (the names that this package offers), `client` (the methods), `documents` (what they submit),
`voda.wire` (the records that they return), `records` (a list of these) and `decoding`; `async_client` (the same methods
for asyncio) and `threads`; `target` finds the server, `http` sends requests, repeats those that can be repeated and
follows streams, `job_output` makes lines of them, `job_wait` waits by events, `exec/` runs commands, `connection` makes
one exchange, `sse` reads server-sent events, `errors` turns refusals into exceptions.

Rule: of other libraries it needs msgspec alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voda.client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # The command line needs a part of this alone, and starts a fifth sooner without the rest.
    if name[:1].isupper() or name == "__all__":
        return getattr(import_module("voda.client.public"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    names: list[str] = import_module("voda.client.public").__all__
    return names
