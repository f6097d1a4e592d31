"""What the client reads of any object: its name, and which version of it this is."""

from typing import ClassVar, Self

from msgspec import Raw, Struct, field


class KubeRecord(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of trimmed objects and their parts: unknown fields are ignored."""


class ObjectName(KubeRecord, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of what has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PartialObject(KubeRecord, frozen=True):
    """Any object, as far as it takes to see whether it is the same."""

    metadata: ObjectName = ObjectName()


class WatchedObject(KubeRecord, frozen=True):
    """Base of objects that may keep all that a watch said of them."""

    KEEPS_LISTED: ClassVar[bool] = False
    """Whether they keep what a list said of them, too; a list of them costs more then."""

    def with_text(self, text: Raw) -> Self:
        """Return the object, with its text where somebody is about to read it."""
        return self


class ListMetadata(KubeRecord, frozen=True):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
