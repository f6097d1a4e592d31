"""Backoff: when something that failed may be tried again. The delay doubles with each failure in a row.

`Backoff` keeps delays by key, for level-triggered retries: a loop that comes by anyway asks which keys are due.
`delay_s` is the arithmetic alone, for a coroutine that counts its own failures.

Rule: pure; the time is a parameter, in seconds of whichever clock the caller goes by.
"""

from typing import Final, NamedTuple

from voda.domain.rng import rng_at

_MOST_DOUBLINGS: Final = 16


def delay_s(attempts: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay after so many failures in a row, at least 1."""
    return min(first_s * 2.0 ** min(attempts - 1, _MOST_DOUBLINGS), longest_s)


class _Delay(NamedTuple):
    attempts: int
    until: float


class Backoff:
    """Delays by key.

    A delay is longer by up to the share `jitter` (>= 0), drawn for every key and attempt: keys that failed together are
    not tried again together.
    """

    def __init__(self, *, first_s: float, longest_s: float, jitter: float = 0.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._jitter = jitter
        self._delays: dict[str, _Delay] = {}

    def failed(self, key: str, now: float, *, at_least_s: float = 0.0) -> int:
        """Delay a key from now on, and return how often it failed in a row.

        The shortest delay, such as a server's Retry-After, may exceed the longest one.
        """
        attempts = (self._delays[key].attempts if key in self._delays else 0) + 1
        span_s = max(delay_s(attempts, first_s=self._first_s, longest_s=self._longest_s), at_least_s)
        if self._jitter:
            span_s *= 1 + self._jitter * rng_at(attempts, key).random()
        self._delays[key] = _Delay(attempts, now + span_s)
        return attempts

    def due_at(self, key: str) -> float:
        """Return the instant from which a key may be tried again; 0 where it has not failed."""
        delay = self._delays.get(key)
        return delay.until if delay else 0.0

    def is_due(self, key: str, now: float) -> bool:
        return self.due_at(key) <= now

    def due(self, now: float) -> list[str]:
        """Return the keys that failed and may be tried again."""
        return [key for key, delay in self._delays.items() if delay.until <= now]

    def reset(self, key: str) -> None:
        """Forget that a key failed: it succeeded, or something else is to be done."""
        self._delays.pop(key, None)

    def clear(self) -> None:
        self._delays.clear()

    def forget_before(self, instant: float) -> None:
        """Forget the keys whose delays ended before an instant: nothing has asked about them since."""
        for key in [key for key, delay in self._delays.items() if delay.until < instant]:
            del self._delays[key]
