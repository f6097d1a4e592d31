"""Figures that are asked for, with their bounds.

Rule: `Meta(ge=..., le=...)` is held to where a body is read; `extra_json_schema` is for whoever reads the document,
and voda.application.change_job holds to it with a sentence.
"""

from typing import Annotated

from msgspec import Meta

from voda.domain.job import MOST_REPLICAS

_BILLION = 1_000_000_000

Size = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_REPLICAS})]
Workers = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MOST_REPLICAS})]
Figure = Annotated[int, Meta(extra_json_schema={"minimum": -_BILLION, "maximum": _BILLION})]
Count = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": _BILLION})]
Epoch = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": _BILLION})]
Positive = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": _BILLION})]

Rate = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1e15})]

SpanOfADay = Annotated[float, Meta(ge=0, le=86_400)]
Share = Annotated[float, Meta(ge=0, le=1)]
