"""Reading: turns a request's path, query, headers and body into models, or says everything that is wrong with them."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from aiohttp import hdrs, web
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from api.http import validation
from api.http.problems import FieldProblem, RequestRejected
from api.http.routes import JSON, REQUEST_STATE
from domain.faults import Missing
from infra.settings import ApiSettings

JSON_MAX_DEPTH = 64

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")

Model = TypeVar("Model", bound=BaseModel)


def parse_path(request: web.Request, model: type[Model]) -> Model:
    """The path's variables. One that cannot be an id of ours names nothing, so it is missing, not invalid."""
    try:
        return model.model_validate(dict(request.match_info))
    except ValidationError as error:
        wrong = validation.describe_errors(error, model)[0]
        raise Missing("not_found", f"There is nothing under this {wrong.path}: {wrong.message}") from None


def parse_query(request: web.Request, model: type[Model], besides: str = "") -> Model:
    """The query, each parameter at most once, but for one besides the model; numbers are read from their text."""
    values = dict(request.query) if request.query_string else {}
    values.pop(besides, None)
    repeated = [name for name in values if len(request.query.getall(name)) > 1]
    errors = [FieldProblem(path=name, message="it is given more than once; give it once.") for name in repeated]
    errors += _unstorable(values)
    if errors:
        reject_fields("query", errors)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        reject_fields("query", validation.describe_errors(error, model))


def parse_headers(request: web.Request, model: type[Model]) -> Model:
    """The headers that a model names, each at most once; all others are none of the handler's business."""
    names = [name for name in map(_alias, model.model_fields.values()) if name in request.headers]
    repeated = [name for name in names if len(request.headers.getall(name)) > 1]
    if repeated:
        errors = [FieldProblem(path=name, message="it is sent more than once; send it once.") for name in repeated]
        reject_fields("header", errors)
    try:
        return model.model_validate({name: request.headers[name] for name in names})
    except ValidationError as error:
        reject_fields("header", validation.describe_errors(error, model))


def _alias(field: FieldInfo) -> str:
    if field.alias is None:
        raise TypeError("A field that stands for a header has the header's name as its alias.")
    return field.alias


async def parse_body(
    request: web.Request, model: type[Model], settings: ApiSettings, *, headerless: bool = False
) -> Model:
    """The JSON body, without coercion: a number in quotes is a string.

    Args:
        headerless: Whether a body without a Content-Type is taken for JSON.
    """
    _check_headers(request, settings.body_max_bytes, headerless=headerless)
    # Some editors and libraries put a byte order mark before what they write.
    raw = request[REQUEST_STATE].body = (await _read(request, settings)).removeprefix(codecs.BOM_UTF8)
    # Such a client may say in the query all that it has to say.
    text = _decoded(raw) or ("{}" if headerless and hdrs.CONTENT_TYPE not in request.headers else "")
    value = _parsed(text)
    if not _is_plain(text) and (errors := list(_unstorable(value))):
        reject_fields("body", errors)
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        reject_fields("body", validation.describe_errors(error, model))


def reject_fields(place: str, errors: list[FieldProblem]) -> NoReturn:
    """Say what is wrong with a part of the request; all of it under `errors`."""
    first = errors[0]
    detail = f"{first.path or f'The {place}'}: {first.message}"
    if len(errors) > 1:
        detail += f" {len(errors) - 1} more under `errors`."
    raise RequestRejected(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=errors) from None


def _check_headers(request: web.Request, max_bytes: int, *, headerless: bool) -> None:
    # Parsed only where it is not what nearly all send.
    is_plain = request.headers.get(hdrs.CONTENT_TYPE, JSON if headerless else "") == JSON
    if not is_plain and (request.content_type != JSON or (request.charset or "utf-8").lower() != "utf-8"):
        raise RequestRejected(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "The body must be JSON in UTF-8.",
            "Send it with the header Content-Type: application/json.",
        )
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise RequestRejected(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_encoding",
            "Compressed bodies are not taken.",
            "Send the body as it is, without Content-Encoding.",
        )
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)


async def _read(request: web.Request, settings: ApiSettings) -> bytes:
    try:
        if request.content.is_eof():
            # What came with the head needs neither clock nor loop.
            raw = request.content.read_nowait()
            if len(raw) > request.client_max_size:
                raise _too_large(settings.body_max_bytes)
            return raw
        async with asyncio.timeout(settings.body_timeout_seconds):
            return await request.read()
    except TimeoutError:
        raise RequestRejected(
            HTTPStatus.REQUEST_TIMEOUT,
            "body_timeout",
            f"The body did not arrive within {settings.body_timeout_seconds:g} seconds.",
            "Send it in one go, and check the connection.",
        ) from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(settings.body_max_bytes) from None
    except (web.RequestPayloadError, ConnectionError):
        raise _malformed("The body ended early or its framing is broken.") from None


def _too_large(max_bytes: int) -> RequestRejected:
    return RequestRejected(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"The body is larger than the {max_bytes:,} bytes allowed.",
        "Send less at once.",
    )


def _malformed(message: str) -> RequestRejected:
    return RequestRejected(HTTPStatus.BAD_REQUEST, "malformed_json", message, "Send one well-formed JSON document.")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _malformed(f"Byte {error.start} of the body is not UTF-8.") from None


def _parsed(text: str) -> Any:
    """Python's parser is the stricter first reader: pydantic's own takes duplicate names and NaN in silence."""
    try:
        return _strict.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"The body is not JSON: {error.msg}, line {error.lineno} column {error.colno}.") from None
    except RecursionError:
        raise _malformed(f"The body is nested deeper than {JSON_MAX_DEPTH} levels.") from None
    except ValueError:
        raise _malformed("The body holds a number with thousands of digits.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in members if names.count(name) > 1)
        raise _malformed(f"The body gives {validation.format_value(repeated)} more than once in one object.")
    return members


def _not_a_number(name: str) -> NoReturn:
    raise _malformed(f"The body holds {name}, which is not JSON.")


_strict = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_not_a_number)


def _is_plain(text: str) -> bool:
    """Whether `_unstorable` can find nothing in it: no escaped character, and too few brackets to be nested deeply."""
    return "\\u" not in text and text.count("{") + text.count("[") <= JSON_MAX_DEPTH


def _unstorable(value: Any, location: tuple[str | int, ...] = ()) -> Iterator[FieldProblem]:
    """Text that PostgreSQL cannot hold: NUL characters, and halves of surrogate pairs."""
    if len(location) > JSON_MAX_DEPTH:
        raise _malformed(f"The body is nested deeper than {JSON_MAX_DEPTH} levels.")
    match value:
        case str():
            if _UNSTORABLE.search(value):
                message = "it holds a NUL character or half a surrogate pair; remove it."
                yield FieldProblem(path=validation.format_path(location), message=message)
        case dict():
            for name, inner in value.items():
                yield from _unstorable(name, (*location, name))
                yield from _unstorable(inner, (*location, name))
        case list():
            for index, inner in enumerate(value):
                yield from _unstorable(inner, (*location, index))
