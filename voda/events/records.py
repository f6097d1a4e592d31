"""What all facts of the log have in common: their word in the log, their stream, and what they make due."""

from typing import ClassVar

from msgspec import Struct


class Data(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all facts. They are frozen and made of plain values, so that no garbage collector has to visit them."""

    TYPE: ClassVar[str]
    SCHEMA: ClassVar[int] = 1
    MAKES_PLAN_DUE: ClassVar[bool] = False
    """Whether the pool it concerns needs a new plan."""
    MAKES_CLUSTER_STALE: ClassVar[bool] = True
    """Whether the cluster may differ from the plan after it: the plan or what the cluster shows has changed."""

    @property
    def stream(self) -> str:
        """The stream this fact belongs to; `family.key`, so that it can be a NATS subject."""
        raise TypeError(f"{type(self).__name__} names no stream")


class JobFact(Data, frozen=True, kw_only=True):
    job_id: str

    @property
    def stream(self) -> str:
        return f"job.{self.job_id}"


class PoolFact(Data, frozen=True, kw_only=True):
    """A fact about one pool's settings."""

    pool: str

    @property
    def stream(self) -> str:
        return f"settings.{self.pool}"


class AccountFact(Data, frozen=True, kw_only=True):
    """A fact about the account of a node's GPUs."""

    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    node: str
    pod_uid: str

    @property
    def stream(self) -> str:
        return f"shares.{self.node}"
