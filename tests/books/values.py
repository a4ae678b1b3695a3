"""What a cell of JSON is in a book, one by one, as the documents say; for the reference writer."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

DIGITS_MAX = 15
FIRST_DAY = date(1900, 3, 1)
DATE_FORMAT, DATETIME_FORMAT, TEXT_FORMAT = "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "@"

_URL = re.compile(r"(https?://|mailto:)\S+")
_ZONED = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


class Url(str):
    """A text that leads to where it says."""

    __slots__ = ()


class Formula(str):
    """A text that Excel reckons."""

    __slots__ = ()


def read(cell: str, kind: str, zone: str) -> Any:
    """The value: None, a bool, a number, a moment on the zone's clocks, an address, a formula, or a text."""
    value = json.loads(cell, parse_int=str, parse_float=str)
    is_text = cell.startswith('"')
    match value:
        case None:
            return None
        case bool():
            return cell if kind == "text" else value
        case dict() | list():
            return cell
        case str() if not is_text:
            return _number(cell, kind)
    if kind == "number" and _NUMBER.fullmatch(value) and _significant(value) <= DIGITS_MAX:
        return float(value)
    if kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind == "link" and _URL.fullmatch(value):
        return Url(value)
    if kind == "formula" and len(value) > 1 and value.startswith("="):
        return Formula(value)
    if (kind == "auto" and _ZONED.fullmatch(value)) or (kind in ("date", "datetime") and _DATED.fullmatch(value)):
        return _moment(value, zone)
    return value


def look(value: Any, kind: str, own: dict[str, Any]) -> dict[str, Any]:
    """The look of a cell, given that of its column: a moment is shown as one, and a number never."""
    dated = "y" in own.get("num_format", "")
    if isinstance(value, datetime) and not dated:
        return own | {"num_format": DATETIME_FORMAT}
    if isinstance(value, float) and dated and kind in ("date", "datetime"):
        return {name: said for name, said in own.items() if name != "num_format"}
    return own


def render_for_width(value: Any, cell: str, number_format: str | None) -> str:
    """What counts for the width of a column."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case datetime():
            return number_format or DATETIME_FORMAT
        case tuple():
            return "".join(piece.text for piece in value)
        case float():
            return f"{value:,.2f}" if number_format == "#,##0.00" else cell.strip('"')
        case _:
            return str(value)


def _number(cell: str, kind: str) -> Any:
    if kind == "text":
        return cell
    if kind == "boolean" and cell in ("0", "1"):
        return cell == "1"
    # What a computer writes for its own number of 64 bits is that number, however many digits it takes.
    binary = "." in cell and repr(float(cell)) == cell
    return float(cell) if binary or _significant(cell) <= DIGITS_MAX else cell


def _significant(number: str) -> int:
    """The digits that could be lost: zeros at the end of a whole number are some, of a fraction they are none."""
    mantissa, _, exponent = number.lower().lstrip("-").partition("e")
    whole, point, fraction = mantissa.partition(".")
    digits = whole + fraction
    if point or exponent:
        digits = (whole + fraction.rstrip("0")) if not exponent else digits.rstrip("0")
    return len(digits.lstrip("0")) if Decimal(number) else 0


def _moment(text: str, zone: str) -> datetime | str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    if found.tzinfo is not None:
        found = found.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    found = (found + timedelta(microseconds=500)).replace(microsecond=found.microsecond // 1000 * 1000)
    return found if found.date() >= FIRST_DAY else text
