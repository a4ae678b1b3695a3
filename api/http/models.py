"""Base classes of request and response models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

_VISIBLE = r"\S"
"""A name of blanks alone is refused."""


class Request(BaseModel):
    """Base of a request's body, query, headers or path: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OperatorRequest(Request):
    """The operator and the reason: both go into the audit, since operators share one key."""

    who: str = Field(min_length=1, max_length=200, pattern=_VISIBLE, description="your name, for the audit")
    reason: str = Field(min_length=3, max_length=500, pattern=_VISIBLE, description="why, for the audit")


class LenientRequest(BaseModel):
    """Base of a body whose format another company defines: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Response(BaseModel):
    """Base of a response's body: every field is present, even where its value is the default."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class EmptyQuery(Request):
    """The query of a route that takes no parameters."""
