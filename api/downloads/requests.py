"""What a business system may ask for: every field, its bounds, and the sentence where they are crossed."""

from __future__ import annotations

import json
import re
import zoneinfo
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from api.models import Request
from domain.downloads.request import (
    EXPIRES_IN_SECONDS_DEFAULT,
    MAX_EXEC_SECONDS_DEFAULT,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    Columns,
    Encoding,
    FileType,
)

URL_MAX_CHARACTERS = 4_000
TEMPLATE_MAX_CHARACTERS = 100_000
HEADERS_MAX_CHARACTERS = 16_000
EXPIRES_IN_MIN_SECONDS = 60
EXPIRES_IN_MAX_SECONDS = 30 * 24 * 3600
MAX_EXEC_MAX_SECONDS = 24 * 3600

_HEADER_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]{0,4000}")
# What HTTP itself uses between two hops, or what we decide: who sets them could smuggle or break requests.
_OUR_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


def _no_excel_yet(value: Any) -> Any:
    if value == "excel":
        raise ValueError("Excel files are not made yet; send csv or parquet.")
    return value


def _known_zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"“{name[:60]}” is no IANA time zone; send one like Asia/Shanghai.")
    return name


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _short_template(template: JsonValue) -> JsonValue:
    if not isinstance(template, (dict, list, type(None))):
        # pydantic shows callers no other kind of error.
        raise ValueError("it is neither an object nor an array; send a tree of column heads.")  # noqa: TRY004
    length = len(json.dumps(template, ensure_ascii=False))
    if length > TEMPLATE_MAX_CHARACTERS:
        raise ValueError(f"it has {length:,} characters; send {TEMPLATE_MAX_CHARACTERS:,} or less.")
    return template


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"“{name[:60]}” is no name of a header; use 1–100 letters, digits and hyphens.")
        if name.lower() in _OUR_HEADERS:
            raise ValueError(f"{name} cannot be set: HTTP or we ourselves decide it. Remove it.")
        if not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(
                f"the value of {name} is not 0–4000 printable ASCII characters without spaces around; correct it."
            )
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("a name comes twice, in different cases; send it once.")
    length = sum(len(name) + len(value) for name, value in headers.items())
    if length > HEADERS_MAX_CHARACTERS:
        raise ValueError(f"they have {length:,} characters in all; send {HEADERS_MAX_CHARACTERS:,} or less.")
    return headers


ColumnName = Annotated[str, Field(max_length=1_000)]
InlineRow = Annotated[dict[ColumnName, JsonValue], Field(max_length=2_000)]
Headers = Annotated[dict[str, Annotated[str, Field(max_length=4_000)]], Field(max_length=50), AfterValidator(_sendable)]
Url = Annotated[str, Field(min_length=1, max_length=URL_MAX_CHARACTERS)]


class NewDownload(Request):
    """What to export, from where, and into what."""

    source_url: Url | None = Field(
        default=None, description="asked as it is, with `page` (from 0) and `page_size` added; or send `data`"
    )
    data: list[InlineRow] | None = Field(
        default=None, max_length=100_000, description="the rows themselves, instead of a `source_url`"
    )
    headers: Headers | None = Field(default=None, description="sent with every request to the source; kept encrypted")
    page_size: int = Field(
        default=PAGE_SIZE_DEFAULT, ge=PAGE_SIZE_MIN, le=PAGE_SIZE_MAX, description="rows asked for at a time"
    )
    force_continue: bool = Field(
        default=False, description="a short or an empty page does not end the data: go on to the total"
    )
    columns: Columns = Field(
        default=Columns.CLOSED, description="whether a key that comes up late is an error or one more column"
    )
    type: Annotated[FileType, BeforeValidator(_no_excel_yet)] = FileType.CSV
    file_name: str | None = Field(default=None, max_length=200, description="by default date, time and random letters")
    encoding: Encoding = Field(default=Encoding.UTF_8_BOM, description="of the text of a CSV file")
    formula_guard: bool = Field(
        default=True, description="put ' before text in CSV that a spreadsheet would take for a formula"
    )
    time_zone: Annotated[str, Field(max_length=100), AfterValidator(_known_zone)] = Field(
        default="UTC", description="IANA name, for dates in spreadsheets"
    )
    title: str | None = Field(default=None, max_length=200, description="above the table; spreadsheets only")
    summary: str | None = Field(default=None, max_length=8_000, description="below the title; spreadsheets only")
    template: Annotated[JsonValue, AfterValidator(_short_template)] = Field(
        default=None, description="tree of column heads; spreadsheets only"
    )
    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    operator_id: str | None = Field(default=None, max_length=64, description="who asked for it, on your side")
    callback: Url | None = Field(default=None, description="told when the download ends, by a signed webhook")
    expires_in: int = Field(
        default=EXPIRES_IN_SECONDS_DEFAULT,
        ge=EXPIRES_IN_MIN_SECONDS,
        le=EXPIRES_IN_MAX_SECONDS,
        description="how many seconds the file is kept",
    )
    max_exec_time: int = Field(
        default=MAX_EXEC_SECONDS_DEFAULT,
        ge=1,
        le=MAX_EXEC_MAX_SECONDS,
        description="a download that is not done after so many seconds fails",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.source_url is None) == (self.data is None):
            found = "neither" if self.data is None else "both"
            raise ValueError(f"it has {found} of source_url and data; send one of them.")
        if self.data is not None and self.headers is not None:
            raise ValueError("it has headers for a source, but the rows come as data; send one of them.")
        return self
