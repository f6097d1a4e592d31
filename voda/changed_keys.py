"""Keys in the order in which something about them changed last: whoever remembers a count asks what changed since."""


class ChangedKeys:
    """Asking costs as much as there are answers, however many keys there are."""

    def __init__(self) -> None:
        self.count = 0
        """Of all changes."""
        self._at: dict[str, int] = {}
        """Key -> the count of its last change; the latest at the end."""

    def add(self, key: str) -> None:
        """Take note that something about a key has changed."""
        self.count += 1
        self._at.pop(key, None)
        self._at[key] = self.count

    def since(self, count: int) -> list[str]:
        """Return the keys that changed after so many changes, the latest first."""
        found = []
        for key in reversed(self._at):
            if self._at[key] <= count:
                break
            found.append(key)
        return found
