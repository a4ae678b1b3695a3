"""Parsing: a request's path, query, headers and body into models, or an error that names every wrong field."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar, get_args

from aiohttp import hdrs, web
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from api.http import validation
from api.http.problems import FieldProblem, RequestRejected
from api.http.routes import JSON, REQUEST_STATE
from domain.faults import Missing
from infra.settings import ApiSettings

JSON_MAX_DEPTH = 64
JSON_MAX_CONTAINERS = 110_000
"""Arrays and objects of one body: half a million, which fit into 1 MB, take a second of processor. 100,000 rows of
`data` are within it."""

_PLAIN_NUMBER = re.compile(r"-?[0-9]+")
_WHOLE = TypeAdapter(int)
_TEXT_IN_JSON = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")

Location = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


def parse_path(request: web.Request, model: type[Model]) -> Model:
    """Parse the variables of the path; a malformed id raises Missing, as it can name nothing."""
    try:
        return model.model_validate(dict(request.match_info))
    except ValidationError as error:
        wrong = validation.describe_errors(error, model)[0]
        raise Missing("not_found", f"There is nothing under this {wrong.path}: {wrong.message}") from None


def parse_query(request: web.Request, model: type[Model], ignored: Collection[str] = ()) -> Model:
    """Parse the query, each parameter at most once; `ignored` names those that the model does not have."""
    values = dict(request.query) if request.query_string else {}
    for name in ignored:
        values.pop(name, None)
    counts = Counter(name for name, _ in request.query.items()) if values else {}
    repeated = [name for name in values if counts[name] > 1]
    errors = [FieldProblem(path=name, message="it is given more than once; give it once.") for name in repeated]
    errors += map(_describe_unstorable_field, _list_unstorable_fields(values))
    errors += _list_integers_not_in_digits(values, model)
    if errors:
        reject_request_with_field_errors("query", errors)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        reject_request_with_field_errors("query", validation.describe_errors(error, model), error.error_count())


def _list_integers_not_in_digits(values: Mapping[str, str], model: type[BaseModel]) -> Iterator[FieldProblem]:
    """Yield the whole numbers that are written otherwise than in plain digits, such as `1_000`, `+5` or `５`."""
    for name, field in model.model_fields.items():
        value = values.get(name)
        if value is None or _PLAIN_NUMBER.fullmatch(value) or not _is_integer_field(field.annotation):
            continue
        with suppress(ValidationError):
            number = _WHOLE.validate_python(value)
            message = f"{validation.format_value(value)} is no number in plain digits; send {number}."
            yield FieldProblem(path=name, message=message)


def _is_integer_field(annotation: Any) -> bool:
    return annotation is int or int in get_args(annotation)


def parse_headers(request: web.Request, model: type[Model]) -> Model:
    """Parse the headers that a model names, each at most once."""
    names = [name for name in map(_get_header_name, model.model_fields.values()) if name in request.headers]
    repeated = [name for name in names if len(request.headers.getall(name)) > 1]
    if repeated:
        errors = [FieldProblem(path=name, message="it is sent more than once; send it once.") for name in repeated]
        reject_request_with_field_errors("header", errors)
    try:
        return model.model_validate({name: request.headers[name] for name in names})
    except ValidationError as error:
        reject_request_with_field_errors("header", validation.describe_errors(error, model), error.error_count())


def _get_header_name(field: FieldInfo) -> str:
    if field.alias is None:
        raise TypeError("A field that stands for a header has the header's name as its alias.")
    return field.alias


async def parse_body(
    request: web.Request, model: type[Model], settings: ApiSettings, *, headerless: bool = False
) -> Model:
    """Parse the JSON body strictly: a number in quotes is a string.

    Args:
        headerless: Whether a body without a Content-Type is JSON.
    """
    _require_json_headers(request, settings.body_max_bytes, headerless=headerless)
    # Some editors and libraries write a byte order mark first.
    raw = request[REQUEST_STATE].body = (await _read_body(request, settings)).removeprefix(codecs.BOM_UTF8)
    # Such a client may send all parameters in the query.
    text = _decode_utf8(raw) or ("{}" if headerless and hdrs.CONTENT_TYPE not in request.headers else "")
    return parse_json_text_strictly(text, model)


def parse_json_text_strictly(text: str, model: type[Model]) -> Model:
    """Parse JSON strictly; whatever a text within the limit holds, this takes a fraction of a second."""
    _require_few_arrays_and_objects(text)
    value = _parse_json(text)
    if not _is_surely_storable_and_shallow(text) and (locations := list(_list_unstorable_fields(value))):
        listed = [_describe_unstorable_field(location) for location in locations[: validation.ERRORS_MAX]]
        reject_request_with_field_errors("body", listed, len(locations))
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        reject_request_with_field_errors("body", validation.describe_errors(error, model), error.error_count())


def reject_request_with_field_errors(place: str, errors: list[FieldProblem], count: int = 0) -> NoReturn:
    """Reject a request with the first errors of its fields.

    Args:
        count: How many there are, if more than are described.
    """
    count, errors = max(count, len(errors)), errors[: validation.ERRORS_MAX]
    first = errors[0]
    detail = f"{first.path or f'The {place}'}: {first.message}"
    if len(errors) > 1:
        detail += f" {len(errors) - 1} more under `errors`."
    if count > len(errors):
        detail += f" Another {count - len(errors):,} are not listed."
    raise RequestRejected(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=errors) from None


def _require_json_headers(request: web.Request, max_bytes: int, *, headerless: bool) -> None:
    # Parsed only if it is not the usual value.
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
        raise _build_body_too_large_error(max_bytes)


async def _read_body(request: web.Request, settings: ApiSettings) -> bytes:
    try:
        if request.content.is_eof():
            # A body that arrived with the headers needs no timer and no wait.
            raw = request.content.read_nowait()
            if len(raw) > request.client_max_size:
                raise _build_body_too_large_error(settings.body_max_bytes)
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
        raise _build_body_too_large_error(settings.body_max_bytes) from None
    except (web.RequestPayloadError, ConnectionError):
        raise _build_bad_json_error("The body ended early or its framing is broken.") from None


def _build_body_too_large_error(max_bytes: int) -> RequestRejected:
    return RequestRejected(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"The body is larger than the {max_bytes:,} bytes allowed.",
        "Send less at once.",
    )


def _build_bad_json_error(message: str) -> RequestRejected:
    return RequestRejected(HTTPStatus.BAD_REQUEST, "malformed_json", message, "Send one well-formed JSON document.")


def _decode_utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _build_bad_json_error(f"Byte {error.start} of the body is not UTF-8.") from None


def _parse_json(text: str) -> Any:
    """Parse with Python's parser first: pydantic's accepts duplicate names and NaN."""
    try:
        return _strict.decode(text)
    except json.JSONDecodeError as error:
        raise _build_bad_json_error(
            f"The body is not JSON: {error.msg}, line {error.lineno} column {error.colno}."
        ) from None
    except RecursionError:
        raise _build_bad_json_error(f"The body is nested deeper than {JSON_MAX_DEPTH} levels.") from None
    except ValueError:
        raise _build_bad_json_error("The body holds a number with thousands of digits.") from None


def _build_object_of_distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name in members if counts[name] > 1)
        raise _build_bad_json_error(f"The body gives {validation.format_value(repeated)} more than once in one object.")
    return members


def _reject_nan_or_infinity(name: str) -> NoReturn:
    raise _build_bad_json_error(f"The body holds {name}, which is not JSON.")


_strict = json.JSONDecoder(object_pairs_hook=_build_object_of_distinct_names, parse_constant=_reject_nan_or_infinity)


def _require_few_arrays_and_objects(text: str) -> None:
    if _count_brackets(text) > JSON_MAX_CONTAINERS and _count_brackets(_TEXT_IN_JSON.sub("", text)) > (
        JSON_MAX_CONTAINERS
    ):
        message = f"The body has more than {JSON_MAX_CONTAINERS:,} arrays and objects. Send less at once."
        raise RequestRejected(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", message)


def _count_brackets(text: str) -> int:
    return text.count("{") + text.count("[")


def _is_surely_storable_and_shallow(text: str) -> bool:
    """Return whether a text has no escaped character, and too few brackets to be nested too deeply."""
    return "\\u" not in text and _count_brackets(text) <= JSON_MAX_DEPTH


def _describe_unstorable_field(location: Location) -> FieldProblem:
    message = "it holds a NUL character or half a surrogate pair; remove it."
    return FieldProblem(path=validation.format_path(location), message=message)


def _list_unstorable_fields(value: Any, location: Location = ()) -> Iterator[Location]:
    """Yield where text is that PostgreSQL cannot store: NUL, or half a surrogate pair."""
    if len(location) > JSON_MAX_DEPTH:
        raise _build_bad_json_error(f"The body is nested deeper than {JSON_MAX_DEPTH} levels.")
    match value:
        case str():
            if _UNSTORABLE.search(value):
                yield location
        case dict():
            for name, inner in value.items():
                yield from _list_unstorable_fields(name, (*location, name))
                yield from _list_unstorable_fields(inner, (*location, name))
        case list():
            for index, inner in enumerate(value):
                yield from _list_unstorable_fields(inner, (*location, index))
