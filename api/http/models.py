"""Base classes of request and response models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler

DEPRECATED_DAYS = 180
_VISIBLE = r"\S"
"""A name of blanks alone is refused."""


class Request(BaseModel):
    """Base of a request's body, query, headers or path: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class OperatorRequest(Request):
    """The operator and the reason: both go into the audit, since operators share one key."""

    who: str = Field(min_length=1, max_length=200, pattern=_VISIBLE, description="your name, for the audit")
    reason: str = Field(min_length=3, max_length=500, pattern=_VISIBLE, description="why, for the audit")


class LenientRequest(BaseModel):
    """Base of a body whose format another company defines: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Response(BaseModel):
    """Base of a response's body: every field is present, even where its value is the default."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True, defer_build=True)


class EmptyQuery(Request):
    """The query of a route that takes no parameters."""


@dataclass(frozen=True, slots=True)
class Deprecated:
    """Mark a route, or a field of a request (in `Annotated`), that a later release will not have."""

    since: date
    until: date
    """No release before this day is without it."""
    instead: str
    """What to do instead, as a sentence."""

    def __post_init__(self) -> None:
        """Refuse a time that is shorter than what `docs/reference/compatibility.md` promises."""
        if (self.until - self.since).days < DEPRECATED_DAYS:
            raise ValueError(f"What is deprecated works for at least {DEPRECATED_DAYS} days.")

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the field, marked."""
        return {**handler(schema), "deprecated": True}


def find_deprecated_fields(model: BaseModel, path: str = "") -> Iterator[tuple[str, Deprecated]]:
    """Yield the deprecated fields that a request gives, each with its path."""
    if not _has_deprecated_fields(type(model)):
        return
    for name in sorted(model.model_fields_set):
        field = type(model).model_fields[name]
        own = path + (field.alias or name)
        yield from ((own, mark) for mark in field.metadata if isinstance(mark, Deprecated))
        value = getattr(model, name)
        for inner in value if isinstance(value, list | tuple) else (value,):
            if isinstance(inner, BaseModel):
                yield from find_deprecated_fields(inner, f"{own}.")


@cache
def _has_deprecated_fields(model: type[BaseModel]) -> bool:
    return '"deprecated": true' in json.dumps(model.model_json_schema())
