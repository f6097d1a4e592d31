"""Translates the errors of NATS to voda's."""

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
"""A new leader does not know the last message yet; nothing was written."""
_CONFLICTS = (10071, 10164)
"""The second is of a replicated stream: another message for the subject is being written."""
_NO_JETSTREAM = (10039, 10076)
_NO_ROOM = (10023, 10028, 10047, 10077, 10110)
_NOT_WITH_THESE_SERVERS = (10005, 10074)
_TOO_LARGE = (10054,)
_SEALED = (10109,)
_DENIED = ("authorization", "permissions", "authentication")


class TlsMissing(nats.errors.Error):
    """A server offers no TLS, but TLS is required."""


def is_conflict(error: BaseException) -> bool:
    """Return whether a message was refused because another one is, or will be, in its place."""
    return isinstance(error, APIError) and error.err_code in _CONFLICTS


@asynccontextmanager
async def translate_errors(place: str) -> AsyncIterator[None]:
    """Raise errors of NATS and of the connection as errors of voda that name the log.

    A cancellation that nats-py swallows is raised again: up to Python 3.11 its `wait_for` swallows one that comes in
    the same round of the loop as the answer, so that an endless loop would not end.
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
    said = _message(error)
    if isinstance(error, APIError) and (known := _explain_api(error, place, said)):
        return known
    if any(word in said.lower() for word in _DENIED):
        return InvalidInput(f"{place} refuses the user, password or token, or what they ask for: {said}")
    match error:
        case TlsMissing():
            return InvalidInput(
                f"{place}: the server does not speak TLS: give it a certificate (tls: in its settings), or begin the"
                " URL with nats://, where the traffic is readable on the way"
            )
        case ssl.SSLCertVerificationError():
            return InvalidInput(
                f"{place}: the server's certificate is not trusted ({error.verify_message}): it has to be valid, signed"
                " by the authority that ca=FILE names, and for the host that the URL names"
            )
        case nats.errors.MaxPayloadError():
            return InvalidInput(f"{place}: a message is larger than the server takes (max_payload)")
        case nats.errors.NoRespondersError() | NoStreamResponseError():
            return StoreUnavailable(
                f"{place} does not answer: the stream has no leader, or JetStream is off (jetstream: in the server's"
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


def _message(error: Exception) -> str:
    if isinstance(error, APIError) and error.description:
        return f"{error.description}"
    return str(error).removeprefix("nats: ").splitlines()[0] if str(error) else type(error).__name__
