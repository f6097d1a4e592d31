"""Values that no manifest may hold, however it is written: they would break what reads them later."""

from voda.domain.errors import InvalidInput

MOST_DEPTH = 64


def refuse_odd_values(value: object) -> None:
    """Raise InvalidInput on a NUL or half a character in any text, and on nesting beyond MOST_DEPTH."""
    pending = [(value, 1)]
    while pending:
        current, depth = pending.pop()
        if depth > MOST_DEPTH + 1:
            raise InvalidInput(f"the manifest is nested deeper than {MOST_DEPTH} levels")
        if isinstance(current, str):
            refuse_odd_text(current)
        elif isinstance(current, dict):
            pending.extend((key, depth) for key in current)
            pending.extend((item, depth + 1) for item in current.values())
        elif isinstance(current, list):
            pending.extend((item, depth + 1) for item in current)


def refuse_odd_text(text: str) -> None:
    """Raise InvalidInput on a NUL or half a surrogate pair."""
    if "\0" in text:
        raise InvalidInput(f"the manifest holds a NUL character in {text[:60]!r}: expected text only")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidInput(f"the manifest holds half a character in {text[:60]!r}: expected valid Unicode")
