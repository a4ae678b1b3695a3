"""How values travel through the engine: as JSON, pydantic's models and msgspec's structs alike."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter, DefaultPayloadConverter, JSONPlainPayloadConverter

_ENCODING = "json/plain"
_METADATA = {"encoding": _ENCODING.encode()}

_encode = msgspec.json.Encoder().encode


class JsonConverter(PydanticJSONPlainPayloadConverter):
    """Structs are for what is asked thousands of times a second: they cost a tenth of what models do."""

    def to_payload(self, value: Any) -> Payload | None:
        """See base class."""
        if isinstance(value, msgspec.Struct):
            return Payload(metadata=_METADATA, data=_encode(value))
        return super().to_payload(value)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """See base class."""
        if isinstance(type_hint, type) and issubclass(type_hint, msgspec.Struct):
            return _decoder(type_hint).decode(payload.data)
        return super().from_payload(payload, type_hint)


_CONVERTERS = tuple(
    JsonConverter() if isinstance(each, JSONPlainPayloadConverter) else each
    for each in DefaultPayloadConverter.default_encoding_payload_converters
)


class HousePayloadConverter(CompositePayloadConverter):
    """The SDK's own converters, with ours for JSON.

    The SDK makes one of these for each step of a workflow: they share what they are made of, or all that pydantic has
    learned of our types would be learned anew each time.
    """

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


data_converter = dataclasses.replace(pydantic_data_converter, payload_converter_class=HousePayloadConverter)


@cache
def _decoder(struct: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(struct)
