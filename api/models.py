"""Bases of what callers send and what they get back."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """What a caller sends, as body, query or path: a field that is not named here is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Foreign(BaseModel):
    """What another company's system sends in a form of its own: it may add fields whenever it likes."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Answer(BaseModel):
    """What a caller gets back: every field is there, also where its value is a default."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Nothing(Request):
    """The query of a route that takes none."""
