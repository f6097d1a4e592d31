"""The errors of NATS in voda's words."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
from nats.js.errors import APIError, NoStreamResponseError

from voda.domain.errors import InvalidInput, NotALog, StoreNotWritable, StoreUnavailable, VodaError

# https://github.com/nats-io/nats-server/blob/main/server/errors.json
STREAM_NOT_FOUND = 10059
NOT_READY = 10163
"""A new leader has yet to learn what was written last; nothing was written."""
_CONFLICTS = (10071, 10164)
"""Of a stream with replicas the second: another message for the subject is under way, its sequence not yet known."""
_NO_JETSTREAM = (10039, 10076)
_NO_ROOM = (10023, 10028, 10047, 10077, 10110)
_NOT_WITH_THESE_SERVERS = (10005, 10074)
_TOO_LARGE = (10054,)
_SEALED = (10109,)
_DENIED = ("authorization", "permissions", "authentication")


class TlsMissing(nats.errors.Error):
    """A server that was to speak TLS does not."""


def is_conflict(error: BaseException) -> bool:
    """Whether a message was refused because another one is, or is about to be, where it was to go."""
    return isinstance(error, APIError) and error.err_code in _CONFLICTS


@asynccontextmanager
async def translate_errors(place: str) -> AsyncIterator[None]:
    """Raise the errors of NATS and of the way to it as errors of voda that name the log.

    A cancellation is heeded that nats-py swallows: up to Python 3.11 its `wait_for` does where the answer comes in the
    same round of the loop, and whoever goes on for ever would do so although it was told to end.
    """
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError from error
        if isinstance(error, nats.errors.Error | OSError | TimeoutError):
            raise translate_error(error, place) from error
        raise
    if task is not None and task.cancelling() > cancelled_before:
        raise asyncio.CancelledError


def translate_error(error: Exception, place: str) -> VodaError:
    """Return voda's error for one of NATS."""
    said = _said(error)
    if isinstance(error, APIError) and (known := _explain_api(error, place, said)):
        return known
    if any(word in said.lower() for word in _DENIED):
        return InvalidInput(f"{place} refuses the user, password or token, or what they ask for: {said}")
    match error:
        case TlsMissing():
            return InvalidInput(
                f"{place}: the server does not speak TLS: give it a certificate (tls: in its settings), or begin the"
                " URL with nats://, where anybody on the way can read"
            )
        case ssl.SSLCertVerificationError():
            return InvalidInput(
                f"{place}: the server's certificate is not trusted ({error.verify_message}): it has to be valid, signed"
                " by whom ca=FILE names, and for the host that the URL names"
            )
        case nats.errors.MaxPayloadError():
            return InvalidInput(f"{place}: a message is larger than the server takes (max_payload)")
        case nats.errors.NoRespondersError() | NoStreamResponseError():
            return StoreUnavailable(
                f"{place} does not answer: nobody leads the stream, or JetStream is off (jetstream: in the server's"
                " settings); try again"
            )
        case _:
            return StoreUnavailable(f"{place} does not answer: {said}; try again")


def _explain_api(error: APIError, place: str, said: str) -> VodaError | None:
    code = error.err_code
    if code == STREAM_NOT_FOUND:
        return NotALog(f"{place} holds no voda log yet: run 'voda log migrate {place}' first")
    if code in _NO_JETSTREAM:
        return InvalidInput(f"{place} offers no JetStream ({said}): switch it on, for the server and for the account")
    if code in _NO_ROOM:
        return StoreNotWritable(
            f"{place} cannot grow: {said}; free some space, or raise the server's or account's limit"
        )
    if code in _NOT_WITH_THESE_SERVERS:
        return InvalidInput(f"{place} cannot keep as many replicas as asked for: {said}")
    if code in _TOO_LARGE:
        return InvalidInput(f"{place}: a message is larger than the stream takes ({said})")
    if code in _SEALED:
        return StoreNotWritable(f"{place} may not be written: {said}")
    return None


def _said(error: Exception) -> str:
    if isinstance(error, APIError) and error.description:
        return f"{error.description}"
    return str(error).removeprefix("nats: ").splitlines()[0] if str(error) else type(error).__name__
