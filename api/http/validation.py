"""Validation of requests: pydantic's findings as sentences, timestamps, and fields that take more than one form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Discriminator,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from api.http.problems import FieldProblem
from domain.faults import format_count

_NUMBERS = ("an integer", "a number")

ERRORS_MAX = 100
"""Errors of one request that are described. A body of 1 MB may have 100,000, which would take minutes."""
VALUE_MAX_CHARACTERS = 60
NAME_MAX_CHARACTERS = 100
EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Schema = dict[str, Any]

# No text of a caller that reaches its model holds a NUL, so a step of a location that does is a branch of a union.
_BRANCH_MARK = "\x00"
_BRANCH = re.compile(f"{_BRANCH_MARK}([0-9])")

# How pydantic writes a choice of some members of an enumeration: `<State.FAILED: 'failed'>`.
_MEMBER = re.compile(r"<\w+\.\w+: ('[^']*')>")
_ZONED = "2026-01-01T00:00:00Z"

# The expected kind of value, by the first word of pydantic's error type (`int_type`, `int_parsing`).
_EXPECTED_KINDS = {
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "a string",
    "list": "an array",
    "tuple": "an array",
    "set": "an array",
    "dict": "an object",
    "model": "an object",
    "datetime": "a time such as 2026-01-31T08:00:00Z",
    "date": "a date such as 2026-01-31",
    "uuid": "a UUID",
    "url": "an absolute URL",
}


def describe_errors(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """Return the first errors of a request, each with the path of its field."""
    schema = _get_schema(model)
    return [
        FieldProblem(path=format_path(detail["loc"]), message=_describe_error(detail, schema, model))
        for detail in error.errors(include_url=False)[:ERRORS_MAX]
    ]


def format_path(location: tuple[str | int, ...]) -> str:
    """Return a location as text, such as `headers[2].name`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif parse_union_branch_index(step) is None:
            path += f".{step[:NAME_MAX_CHARACTERS]}" if path else step[:NAME_MAX_CHARACTERS]
    return path


def _describe_error(detail: ErrorDetails, schema: Schema, model: type[BaseModel]) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    field = _find_schema(schema, detail["loc"], schema)
    match kind:
        case "missing":
            return "this field is missing; add it."
        case "extra_forbidden":
            return _describe_duplicate_alias(detail["loc"], model) or _describe_unknown_field(detail["loc"], schema)
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            allowed = _format_range(field, "minimum", "maximum")
            return f"{format_value(value)} is outside {allowed}; choose a value in that range."
        case "string_too_short" | "string_too_long":
            allowed = _format_range(field, "minLength", "maxLength")
            return f"it has {format_count(len(value), 'character')}; send {allowed}."
        case "too_short" | "too_long":
            allowed = _format_range(field, *_get_schema_keywords_of_entry_bounds(value))
            return f"it has {format_count(len(value), 'entry', 'entries')}; send {allowed}."
        case "string_pattern_mismatch":
            has_form = f"{format_value(value)} does not have the form {context['pattern']}; correct it."
            return has_form if value.strip() else "it is blank; write something."
        case "timezone_aware":
            return f"{format_value(value)} does not say its time zone; send a time with its zone, e.g. {_ZONED}."
        case "literal_error" | "enum":
            expected = _MEMBER.sub(r"\1", context["expected"])
            return f"{format_value(value)} is not one of {expected}; choose one of them."
        case "value_error":
            return str(context["error"])
        case _:
            return _describe_wrong_type(detail)


def _describe_wrong_type(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    expected = _EXPECTED_KINDS.get(kind.partition("_")[0])
    if expected is None:
        return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}; correct it."
    if isinstance(value, str) and kind.endswith("_type") and expected in _NUMBERS:
        return f"{format_value(value)} is a string; send {expected}, without quotes."
    if kind.endswith("_type") and not (isinstance(value, (int, float)) and expected in _NUMBERS):
        return f"{_describe_json_kind(value)} was sent where {expected} belongs; send {expected}."
    return f"{format_value(value)} is not {expected}; send {expected}."


def _describe_unknown_field(location: tuple[str | int, ...], schema: Schema) -> str:
    known = list(_find_schema(schema, location[:-1], schema).get("properties", {}))
    near = difflib.get_close_matches(str(location[-1])[:NAME_MAX_CHARACTERS], known, n=1)
    if near:
        return f"there is no such field; did you mean {near[0]}?"
    if known:
        return f"there is no such field; remove it. Known fields are {', '.join(known)}."
    return "nothing can be set here; remove it."


def _describe_duplicate_alias(location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    """Return a message if a field was sent under two of its names; otherwise an empty text."""
    holder: type[BaseModel] | None = model
    for step in location[:-1]:
        if isinstance(step, str) and holder is not None:
            field = next(
                (field for name, field in holder.model_fields.items() if step in _list_aliases(name, field)), None
            )
            holder = _find_model_in_annotation(field.annotation) if field else None
    for name, field in holder.model_fields.items() if holder else ():
        if location[-1] in (names := _list_aliases(name, field)):
            return f"it is another name of {names[0]}, which was sent, too; send one of {' and '.join(names)}."
    return ""


def _list_aliases(name: str, field: FieldInfo) -> list[str]:
    """Return the names of a field, the usual one first."""
    match field.validation_alias:
        case AliasChoices(choices=choices):
            return [choice for choice in choices if isinstance(choice, str)]
        case str(alias):
            return [alias]
        case _:
            return [name]


def _find_model_in_annotation(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation: alone, in a list, or optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_find_model_in_annotation, get_args(annotation))), None)


def format_value(value: Any) -> str:
    """Return a received value as text, shortened; arrays and objects only by their kind."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _shorten(str(value))
        case str():
            return f"“{_shorten(value)}”"
        case _:
            return _describe_json_kind(value)


def _describe_json_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def _shorten(text: str) -> str:
    return text if len(text) <= VALUE_MAX_CHARACTERS else f"{text[:VALUE_MAX_CHARACTERS]}…"


def _get_schema_keywords_of_entry_bounds(value: Any) -> tuple[str, str]:
    return ("minProperties", "maxProperties") if isinstance(value, dict) else ("minItems", "maxItems")


def _format_range(field: Schema, lowest: str, highest: str) -> str:
    low, high = field.get(lowest), field.get(highest)
    if low is None and (above := field.get("exclusiveMinimum")) is not None:
        return f"the numbers above {above}" if high is None else f"{above}–{high} without {above}"
    if low is not None and high is not None:
        return f"{low}–{high}"
    return f"{low} or more" if high is None else f"{high} or less"


@cache
def _get_schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _find_schema(schema: Schema, location: tuple[str | int, ...], root: Schema) -> Schema:
    """Return the part of a schema at a location, with the branches of unions merged.

    If the location names the branch of a union, only that branch counts.
    """
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        schema = schema | _find_schema(branch, (), root)
    if not location:
        return schema
    step, rest = location[0], location[1:]
    if (branch := parse_union_branch_index(step)) is not None:
        return _find_schema(schema["anyOf"][branch], rest, root)
    inner = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
    inner = inner or schema.get("additionalProperties")
    return _find_schema(inner, rest, root) if isinstance(inner, dict) else {}


def build_union_branch_name(index: int) -> str:
    """Return the discriminator value of a union's branch, given its position in the union."""
    return f"{_BRANCH_MARK}{index}"


def build_union_branch_tag(index: int) -> Tag:
    """Return the annotation that marks a branch of a union with its position."""
    return Tag(build_union_branch_name(index))


def parse_union_branch_index(step: str | int) -> int | None:
    """Return the position of the branch that a step of an error's location names; None for a caller's own key."""
    match = None if isinstance(step, int) else _BRANCH.fullmatch(step)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class AnyOfDiscriminator(Discriminator):
    """Choose the branch of a union by a function; the schema says `anyOf`, as a value may fit several branches."""

    discriminator: Callable[[Any], str]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": schema.pop("oneOf"), **schema}


def choose_single_or_list_branch(value: Any) -> str:
    """Choose the first branch for a single value and the second for an array of values."""
    return build_union_branch_name(1) if isinstance(value, list) else build_union_branch_name(0)


def _require_timestamp_in_range(timestamp: datetime) -> datetime:
    if not EARLIEST_TIMESTAMP <= timestamp <= LATEST_TIMESTAMP:
        raise ValueError("it is outside 1970–2200; choose a time in that range.")
    return timestamp


def _require_timestamp_text(timestamp: object) -> object:
    # pydantic would take a bare number for seconds since 1970.
    if not isinstance(timestamp, str) or _DATE.match(timestamp) is None:
        raise ValueError(f"{format_value(timestamp)} is not a time such as 2026-01-31T08:00:00Z; send one like it.")
    return timestamp


QueryTimestamp = Annotated[
    AwareDatetime, BeforeValidator(_require_timestamp_text), AfterValidator(_require_timestamp_in_range)
]
"""A timestamp in a query, where every value is text."""
BodyTimestamp = Annotated[AwareDatetime, AfterValidator(_require_timestamp_in_range)]
"""A timestamp in a JSON body; strict parsing refuses numbers by itself."""


def require_start_before_end(
    start: datetime | None, end: datetime | None, names: tuple[str, str] = ("start", "end")
) -> None:
    """Raise ValueError if the start of a range is not before its end; a bound that is None is open."""
    if start is not None and end is not None and start >= end:
        first, last = names
        raise ValueError(f"{first} {start.isoformat()} is not before {last} {end.isoformat()}; send a later {last}.")
