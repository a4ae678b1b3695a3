"""The codec of payloads over HTTP, by the protocol of Temporal's Web UI and command line.

The log has who decrypted, not the audit log: nothing is changed, a page of the Web UI makes many such calls, and a
history must stay readable while the database is down.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

from aiohttp import hdrs, web
from pydantic import Field, StringConstraints
from temporalio.api.common.v1 import Payload

from api.http.models import LenientRequest, Response
from api.http.routes import REQUEST_STATE, Call, RouteAccess, Routes
from api.http.sessions import get_web_ui_origin
from domain.faults import Conflict, Invalid
from infra import log
from infra.payloads import EncryptingCodec, PayloadDamaged, PayloadKeyMissing
from infra.settings import Settings
from services.services import Services

BODY_MAX_BYTES: Final = 16 * 1024 * 1024
METADATA_MAX: Final = 100
PREFLIGHT_SECONDS: Final = 600
PIECE_SECONDS: Final = 0.01
"""How long payloads are converted before other requests of the process have their turn."""

MetadataText = Annotated[str, StringConstraints(max_length=10_000)]

_PROBLEMS = {
    "payload_malformed": Invalid,
    "payload_damaged": Invalid,
    "payload_key_missing": Conflict,
}


def _attach_preflight(app: web.Application, services: Services) -> None:
    """Answer the browser that asks whether pages of the Web UI may call these routes."""

    async def answer_preflight(request: web.Request) -> web.Response:
        request[REQUEST_STATE].headers.update(build_cors_headers(request, services.settings))
        return web.Response(status=204)

    for route in routes:
        app.router.add_route(hdrs.METH_OPTIONS, route.path, answer_preflight)


def build_cors_headers(request: web.Request, settings: Settings) -> dict[str, str]:
    """Return the headers that let pages of the Web UI, and of no other origin, read a response."""
    origin = get_web_ui_origin(settings)
    if not origin or request.headers.get(hdrs.ORIGIN) != origin:
        return {hdrs.VARY: hdrs.ORIGIN}
    return {
        hdrs.VARY: hdrs.ORIGIN,
        hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
        hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS: "true",
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: hdrs.METH_POST,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "Authorization, Content-Type, X-Namespace",
        hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_SECONDS),
    }


routes = Routes(
    "codec", "Payloads of workflows in clear, for Temporal's Web UI and command line.", attach=_attach_preflight
)


class CodecPayload(LenientRequest):
    """A payload in Temporal's JSON; bytes are base64."""

    metadata: dict[MetadataText, MetadataText] = Field(
        default={}, max_length=METADATA_MAX, description="values are base64"
    )
    data: str = Field(default="", max_length=BODY_MAX_BYTES, description="base64")


class CodecRequest(LenientRequest):
    """The payloads to convert."""

    payloads: Annotated[list[CodecPayload], Field(max_length=10_000)]


class CodecPayloadResponse(Response):
    """A payload in Temporal's JSON; bytes are base64."""

    metadata: dict[str, str] = Field(description="values are base64")
    data: str = Field(description="base64")


class CodecResponse(Response):
    """As many payloads, in the same order."""

    payloads: list[CodecPayloadResponse]


@routes.post(
    "/v1/codec/decode",
    access=RouteAccess.ADMIN,
    is_audited=False,
    for_web_ui=True,
    body_max_bytes=BODY_MAX_BYTES,
    problems=_PROBLEMS,
)
async def decode(call: Call, body: CodecRequest) -> CodecResponse:
    """Decrypt payloads.

    Payloads that are not encrypted are returned as they are. Set `/v1/codec` as the codec end point of the Web UI,
    which calls this with the console's session, or of `temporal --codec-endpoint`, with the admin key as
    `--codec-auth`.
    """
    codec = _get_or_create_codec(call)
    try:
        response = await _convert_in_pieces(body, codec.decode)
    except PayloadKeyMissing as error:
        raise Conflict("payload_key_missing", str(error)) from error
    except PayloadDamaged as error:
        raise Invalid("payload_damaged", str(error), "Nothing can be read from it.") from error
    log.get(__name__).info("payloads_decrypted", actor=call.caller.actor, payloads=len(body.payloads))
    return response


@routes.post(
    "/v1/codec/encode",
    access=RouteAccess.ADMIN,
    is_audited=False,
    for_web_ui=True,
    body_max_bytes=BODY_MAX_BYTES,
    problems={"payload_malformed": Invalid},
)
async def encode(call: Call, body: CodecRequest) -> CodecResponse:
    """Encrypt payloads, as those that the Web UI sends with a signal.

    Where encryption is off they are returned as they are.
    """
    return await _convert_in_pieces(body, _get_or_create_codec(call).encode)


def _get_or_create_codec(call: Call) -> EncryptingCodec:
    codec = call.services.engine.data_converter.payload_codec
    return codec if isinstance(codec, EncryptingCodec) else EncryptingCodec([], encrypts=False)


async def _convert_in_pieces(
    body: CodecRequest, convert: Callable[[Sequence[Payload]], Awaitable[list[Payload]]]
) -> CodecResponse:
    converted: list[CodecPayloadResponse] = []
    until = time.monotonic() + PIECE_SECONDS
    for each in body.payloads:
        [payload] = await convert([_parse_payload(each)])
        converted.append(_build_response(payload))
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + PIECE_SECONDS
    return CodecResponse(payloads=converted)


def _parse_payload(payload: CodecPayload) -> Payload:
    try:
        metadata = {name: _decode_base64(value) for name, value in payload.metadata.items()}
        return Payload(metadata=metadata, data=_decode_base64(payload.data))
    except (binascii.Error, ValueError):
        raise Invalid("payload_malformed", "A payload holds something else than base64.", "") from None


def _build_response(payload: Payload) -> CodecPayloadResponse:
    metadata = {name: _encode_base64(value) for name, value in payload.metadata.items()}
    return CodecPayloadResponse(metadata=metadata, data=_encode_base64(payload.data))


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
