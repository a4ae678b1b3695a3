"""Values on their way through the engine: models and structs, both as JSON that people can read."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from pydantic import BaseModel

from infra.temporal import HaulagePayloadConverter


class Model(BaseModel):
    """One of pydantic's."""

    at: datetime


class Struct(msgspec.Struct, array_like=True):
    """One of msgspec's."""

    name: str
    count: int = 0


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Struct("a", 2), b'["a",2]'),
        (Model(at=datetime(2026, 1, 1, tzinfo=UTC)), b'{"at":"2026-01-01T00:00:00Z"}'),
        (["plain"], b'["plain"]'),
    ],
)
def test_values_come_back_as_they_were(value: object, data: bytes) -> None:
    """In JSON, whatever makes them."""
    converter = HaulagePayloadConverter()
    [payload] = converter.to_payloads([value])

    assert (payload.metadata["encoding"], payload.data) == (b"json/plain", data)
    assert converter.from_payloads([payload], [type(value)]) == [value]


def test_a_struct_that_is_none_is_refused() -> None:
    """What has the wrong type does not reach a workflow."""
    converter = HaulagePayloadConverter()
    payloads = converter.to_payloads([["a", "two"]])

    with pytest.raises(msgspec.ValidationError):
        converter.from_payloads(payloads, [Struct])
