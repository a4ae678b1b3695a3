"""Values: what the cells of a column are taken for, by what they are and by what the column's kind says.

Every cell is taken by itself, but decisions are made for whole columns: what a column does not hold costs nothing, and
what few cells need is done for these alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from excel import jsontext, moments, numerals, typed
from excel.buffers import Mask, only
from excel.forms import Form, Values
from excel.template.models import Kind
from excel.zones import Zone

URL_MAX_CHARACTERS: Final = 2_079
FORMULA_MAX_CHARACTERS: Final = 8_192

_HTML = "[<&]"
_URL = r"^(?i:https?://|ftps?://|mailto:)[^\s]+$"
_FORMULA = "(?s)^=."


def read(cells: pa.Array, kind: Kind, zone: Zone) -> Values:
    """What the cells of a column are.

    Args:
        cells: A binary column holds the JSON text of each cell, any other typed values.
        kind: What they are taken for.
        zone: Whose time dates are told in.
    """
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    is_json = pa.types.is_binary(cells.type)
    values = jsontext.read(cells) if is_json else typed.read(cells, zone)
    if kind is Kind.TEXT:
        return _all_texts(values)
    if not pa.types.is_floating(cells.type):
        values = _without_long_numbers(values)
    match kind:
        case Kind.AUTO | Kind.DATE | Kind.DATETIME:
            return _moments(values, zone, zoned_only=kind is Kind.AUTO)
        case Kind.NUMBER:
            return _numbers(values)
        case Kind.BOOLEAN:
            return _booleans(values)
        case Kind.RICH:
            return _matching(values, _HTML, Form.RICH)
        case Kind.LINK:
            return _matching(values, _URL, Form.LINK, URL_MAX_CHARACTERS)
        case Kind.FORMULA:
            return _matching(values, _FORMULA, Form.FORMULA, FORMULA_MAX_CHARACTERS)
        case _:
            assert_never(kind)


def asked(values: Values) -> tuple[pa.Array, pa.Array]:
    """The cells as conditions ask them: as numbers, and as texts. A date is the text of its clock on the wall."""
    numbers = only(values.payload, values.mask(Form.NUMBER)).cast(pa.float64())
    texts = only(values.payload, values.mask(Form.TEXT, Form.RICH, Form.LINK, Form.FORMULA))
    if values.has(Form.BOOLEAN):
        words = pc.if_else(pc.equal(values.payload, "1"), "true", "false")
        texts = pc.coalesce(texts, only(words, values.mask(Form.BOOLEAN)))
    for form in (Form.DAY, Form.MOMENT):
        if values.has(form):
            dates = moments.clock(only(values.payload, values.mask(form)), days=form is Form.DAY)
            texts = pc.coalesce(texts, dates)
    return numbers, texts


def _all_texts(values: Values) -> Values:
    payload = values.payload
    if values.has(Form.BOOLEAN):
        words = pc.if_else(pc.equal(payload, "1"), "true", "false")
        payload = pc.if_else(pa.array(values.mask(Form.BOOLEAN)), words, payload)
    return values.turned(values.mask(Form.NUMBER, Form.BOOLEAN), Form.TEXT, payload)


def _without_long_numbers(values: Values) -> Values:
    """Numbers that would lose digits become texts.

    A fraction of 16 or 17 digits is a number nevertheless, if it is what a computer's own number of 64 bits is written
    as: Excel holds the same number, though it shows 15 of its digits.
    """
    if not values.has(Form.NUMBER):
        return values
    numbers, where = _only_of(values, Form.NUMBER)
    exact = numerals.exact(numbers)
    if exact.all():
        return values
    exact[~exact] = numerals.binary(numbers.filter(pa.array(~exact)))
    long = _spread(~exact, where)
    return replace(values.turned(long, Form.TEXT), long_numbers=int(long.sum()))


def _moments(values: Values, zone: Zone, *, zoned_only: bool) -> Values:
    if not values.has(Form.TEXT):
        return values
    texts, where = _only_of(values, Form.TEXT)
    found = moments.read(texts, zone, zoned_only=zoned_only)
    if found is None:
        return values
    mask = _spread(found.found, where)
    if mask.all():
        return values.turned(mask, Form.MOMENT, moments.serials(found.ms))
    payload = pc.replace_with_mask(values.payload, pa.array(mask), moments.serials(found.ms))
    return values.turned(mask, Form.MOMENT, payload)


def _numbers(values: Values) -> Values:
    if not values.has(Form.TEXT):
        return values
    texts, where = _only_of(values, Form.TEXT)
    return values.turned(_spread(numerals.plain(texts), where), Form.NUMBER)


def _booleans(values: Values) -> Values:
    words = pc.utf8_lower(values.payload)
    true, false = (pc.is_in(words, value_set=pa.array(names)) for names in (["true", "1"], ["false", "0"]))
    payload = pc.if_else(true, "1", pc.if_else(false, "0", values.payload))
    where: Mask = pc.or_(true, false).to_numpy(zero_copy_only=False) & values.mask(Form.TEXT, Form.NUMBER)
    return values.turned(where, Form.BOOLEAN, payload)


def _matching(values: Values, pattern: str, form: Form, characters_max: int | None = None) -> Values:
    """Texts that match are of another form, if they are not too long for it."""
    if not values.has(Form.TEXT):
        return values
    texts, where = _only_of(values, Form.TEXT)
    found = pc.match_substring_regex(texts, pattern)
    if characters_max is not None:
        # As Excel counts: whatever lies beyond the basic plane is two.
        units = pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, r"[^\x{0}-\x{ffff}]"))
        found = pc.and_(found, pc.less_equal(units, characters_max))
    return values.turned(_spread(found.fill_null(False).to_numpy(zero_copy_only=False), where), form)


def _only_of(values: Values, form: Form) -> tuple[pa.Array, Mask | None]:
    """The cells of one form, and where they stand; None if there are but them and empty ones."""
    if values.counts[form] + values.counts[Form.EMPTY] == len(values.forms):
        return values.payload, None
    where = values.mask(form)
    return values.payload.filter(pa.array(where)), where


def _spread(found: Mask, where: Mask | None) -> Mask:
    """A mask over the cells of one form as a mask over all."""
    if where is None:
        return found
    spread = np.zeros(len(where), np.bool_)
    spread[where] = found
    return spread
