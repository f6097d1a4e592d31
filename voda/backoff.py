"""Who is left alone for a while because something about it failed, longer each time.

Rule: pauses are kept by key; whoever has to be looked at again at once gets another key.
"""

from typing import Final, NamedTuple

_MOST_DOUBLINGS: Final = 16


class _Pause(NamedTuple):
    attempts: int
    until: float


class Pauses:
    """Pauses by key, growing with each failure in a row.

    Args:
        first_s: the first pause.
        longest_s: the longest one.
    """

    def __init__(self, *, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pauses: dict[str, _Pause] = {}

    def until(self, key: str) -> float:
        """Return the instant up to which a key is left alone; 0 where it is not."""
        pause = self._pauses.get(key)
        return pause.until if pause else 0.0

    def failed(self, key: str, now: float, *, at_least_s: float = 0.0) -> int:
        """Leave a key alone from now on, and return how often it failed in a row."""
        attempts = (self._pauses[key].attempts if key in self._pauses else 0) + 1
        pause_s = min(self._first_s * 2 ** min(attempts - 1, _MOST_DOUBLINGS), self._longest_s)
        self._pauses[key] = _Pause(attempts, now + max(pause_s, at_least_s))
        return attempts

    def done(self, key: str) -> None:
        """Forget that a key ever failed."""
        self._pauses.pop(key, None)

    def forget_before(self, instant: float) -> None:
        """Forget the keys whose pauses were over before an instant: nobody asked about them since."""
        for key in [key for key, pause in self._pauses.items() if pause.until < instant]:
            del self._pauses[key]
