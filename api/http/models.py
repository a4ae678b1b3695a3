"""Base classes of request and response models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """Base of a request's body, query, headers or path: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ForeignRequest(BaseModel):
    """Base of a body whose format another company defines: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Response(BaseModel):
    """Base of a response's body: every field is present, even where its value is the default."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class EmptyQuery(Request):
    """The query of a route that takes no parameters."""
