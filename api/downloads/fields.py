"""Fields that requests for files share: rows, addresses, time zones, and what may be said of each of several tables."""

from __future__ import annotations

import zoneinfo
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from api.downloads.headers import Headers
from api.http import validation

URL_MAX_CHARACTERS = 4_000
ROWS_MAX = 100_000
TABLES_MAX = 20


def _known_zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"“{name[:60]}” is no IANA time zone; send one like Asia/Shanghai.")
    return name


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _form_of_table(value: Any) -> str:
    return validation.branch_name(1 if isinstance(value, dict) else 0)


def _form_of_data(value: Any) -> str:
    is_tables = isinstance(value, list) and not all(isinstance(item, dict) for item in value)
    return validation.branch_name(2) if is_tables and all(map(_may_be_table, value)) else _form_of_table(value)


def _may_be_table(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(rows, list) for rows in value.values())
    return value is None or isinstance(value, list)


TimeZone = Annotated[str, Field(max_length=100), AfterValidator(_known_zone)]

Title = Annotated[str, Field(max_length=200)]
Summary = Annotated[str, Field(max_length=8_000)]
Url = Annotated[str, Field(min_length=1, max_length=URL_MAX_CHARACTERS)]


def _as_text(value: Any) -> Any:
    """Many systems number their users."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _none_of_nothing(value: Any) -> Any:
    """Many systems send an empty text where they have no value."""
    return None if value == "" else value


OperatorId = Annotated[str, Field(max_length=64), BeforeValidator(_as_text)]
Callback = Annotated[Url | None, BeforeValidator(_none_of_nothing)]

_Key = Annotated[str, Field(max_length=1_000)]
Row = Annotated[dict[_Key, JsonValue], Field(max_length=2_000)]
Rows = Annotated[list[Row], Field(max_length=ROWS_MAX)]
Groups = Annotated[dict[_Key, Rows], Field(max_length=ROWS_MAX)]
TableData = Annotated[
    Annotated[Rows, validation.branch_tag(0)] | Annotated[Groups, validation.branch_tag(1)],
    validation.AnyOfDiscriminator(_form_of_table),
]
"""The rows of a table, or the rows of each of its row heads."""

_ForEach = Field(min_length=1, max_length=TABLES_MAX)
# How many tables there may be is judged with all else that is said of them.
_ToldForEach = Field(json_schema_extra={"minItems": 1, "maxItems": TABLES_MAX})
Titles = Annotated[
    Annotated[Title, validation.branch_tag(0)] | Annotated[list[Title | None], _ForEach, validation.branch_tag(1)],
    validation.AnyOfDiscriminator(validation.discriminate_list),
]
Summaries = Annotated[
    Annotated[Summary, validation.branch_tag(0)] | Annotated[list[Summary | None], _ForEach, validation.branch_tag(1)],
    validation.AnyOfDiscriminator(validation.discriminate_list),
]
Urls = Annotated[
    Annotated[Url, validation.branch_tag(0)] | Annotated[list[Url | None], _ForEach, validation.branch_tag(1)],
    validation.AnyOfDiscriminator(validation.discriminate_list),
]
HeadersOfSources = Annotated[
    Annotated[Headers, validation.branch_tag(0)] | Annotated[list[Headers | None], _ForEach, validation.branch_tag(1)],
    validation.AnyOfDiscriminator(validation.discriminate_list),
]
Data = Annotated[
    Annotated[Rows, validation.branch_tag(0)]
    | Annotated[Groups, validation.branch_tag(1)]
    | Annotated[list[TableData | None], _ToldForEach, validation.branch_tag(2)],
    validation.AnyOfDiscriminator(_form_of_data),
]
"""One value for all tables, or an array with one for each."""
