"""What all parts of reasons have in common: in the log and the API their kind is the name of their class."""

import re
from typing import Final

from msgspec import Struct

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def kind_of(name: str) -> str:
    """Return the kind of a record, as the log and the API have it, by the name of its class: `higher_priority`."""
    return _WORD.sub("_", name).lower()


class ReasonPart(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag=kind_of):
    """Part of a reason; its kind is the name of its class."""
