"""Expands `$(VAR)` as Kubernetes does, as far as the kernel gives one process its environment and command line.

Rule: a reference is replaced once and from the left, so what a value brings in is never expanded again; a reference to
an unknown name stays as it was written, and `$$` stands for `$`. The length of a text is known before it is built.
"""

import re
from collections.abc import Mapping
from typing import Final

from voda.domain.errors import InvalidField

MOST_TEXT_BYTES: Final = 131_072
"""Of one word of the command line, or one `NAME=value`: Linux takes 32 pages, with the NUL at the end (execve(2))."""
MOST_BYTES: Final = 2_097_152
"""Of all of them together: a quarter of the usual stack, with a pointer to each (execve(2))."""
_POINTER_BYTES: Final = 8
_REFERENCE: Final = re.compile(r"(\$\$|\$\([^)]*\))")


class Expansion:
    """The environment and the command line of one process, expanded piece by piece.

    Args:
        base: the variables that are there before.
    """

    def __init__(self, base: Mapping[str, str]) -> None:
        self.env = dict(base)
        self._bytes = sum(len(name) + len(value) + 2 + _POINTER_BYTES for name, value in base.items())

    def set_variable(self, name: str, value: str, where: str) -> None:
        """Set a variable, which may refer to those before it; raises what `word` raises."""
        self.env[name] = self._expanded(value, where, len(f"{name}=".encode(errors="surrogatepass")))

    def word(self, text: str, where: str) -> str:
        """Return a word of the command line, expanded.

        Raises:
            InvalidField: it would be too long for the kernel, alone or with all before it; `where` names it.
        """
        return self._expanded(text, where, 0)

    def _expanded(self, text: str, where: str, name_bytes: int) -> str:
        # Characters first: the text is built only where it has no more of them than it may have bytes.
        pieces = [text] if len(text) > MOST_TEXT_BYTES else self._pieces(text)
        size = name_bytes + sum(map(len, pieces)) + 1
        if size <= MOST_TEXT_BYTES:
            text = "".join(pieces)
            size += 0 if text.isascii() else len(text.encode(errors="surrogatepass")) - len(text)
        if size > MOST_TEXT_BYTES:
            what = f"expected {MOST_TEXT_BYTES} bytes or less once $(VAR) is expanded, which is what Linux takes"
            raise InvalidField(where, f"{where}: {what}, got {size}")
        self._bytes += size + _POINTER_BYTES
        if self._bytes > MOST_BYTES:
            what = "the environment and the command line of one replica"
            expected = f"expected {MOST_BYTES} bytes or less of {what} once $(VAR) is expanded"
            raise InvalidField(where, f"{where}: {expected}, got {self._bytes} up to here")
        return text

    def _pieces(self, text: str) -> list[str]:
        """Return what a text is made of: its own parts, and the values of the variables that it refers to."""
        if "$" not in text:
            return [text]
        # No reference ends after the last bracket, and each `$(` would look for its end up to the end of the text.
        closed = text.rfind(")") + 1
        references = _REFERENCE.split(text[:closed])
        references[1::2] = [self._value(reference) for reference in references[1::2]]
        return [*references, text[closed:].replace("$$", "$")]

    def _value(self, reference: str) -> str:
        return "$" if reference == "$$" else self.env.get(reference[2:-1], reference)
