"""Values: what the cells of a column are read as, by their JSON text or Arrow type and by the kind of the column.

Every cell is read by itself, but decisions are made for whole columns: what a column does not hold costs nothing, and
what few cells need is done for these alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, assert_never

import msgspec
import numpy as np
import pyarrow.compute as pc

from excel.arrow import pa
from excel.cells import (
    CellForm,
    ColumnCellPayloadsAndForms,
    Mask,
    mask_not_null,
    replace_by_null_unless,
    view_as_string,
    view_bytes,
)
from excel.moments import (
    LocalTimeConverter,
    Milliseconds,
    detect_moments,
    format_as_serial_numbers,
    format_serial_numbers_as_dates,
    mask_representable,
    to_local_clipping_far_times,
)
from excel.template.models import CellKind
from excel.texts import (
    mask_fractions_equal_to_float_repr,
    mask_numbers_excel_can_hold,
    mask_plain_numbers,
    replace_invalid_characters,
)

URL_MAX_CHARACTERS: Final = 2_079
FORMULA_MAX_CHARACTERS: Final = 8_192

_HTML = "[<&]"
_URL = r"^(?i:https?://|ftps?://|mailto:)[^\s]+$"
_FORMULA = "(?s)^=."


def read_cell_values_by_kind(cells: pa.Array, kind: CellKind, zone: LocalTimeConverter) -> ColumnCellPayloadsAndForms:
    """Read the cells of a column.

    Args:
        cells: A binary column holds the JSON text of each cell, any other typed values.
        kind: What they are read as.
        zone: The zone of dates.
    """
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    is_json = pa.types.is_binary(cells.type)
    values = read_json_cells(cells) if is_json else _read_cells_by_arrow_type(cells, zone)
    if kind is CellKind.TEXT:
        return _convert_numbers_and_booleans_to_texts(values)
    if not pa.types.is_floating(cells.type):
        values = _keep_long_numbers_as_texts(values)
    match kind:
        case CellKind.AUTO | CellKind.DATE | CellKind.DATETIME:
            return _turn_date_texts_into_moments(values, zone, zoned_only=kind is CellKind.AUTO)
        case CellKind.NUMBER:
            return _turn_number_texts_into_numbers(values)
        case CellKind.BOOLEAN:
            return _turn_flag_texts_into_booleans(values)
        case CellKind.RICH:
            return _give_form_to_matching_texts(values, _HTML, CellForm.RICH)
        case CellKind.LINK:
            return _give_form_to_matching_texts(values, _URL, CellForm.LINK, URL_MAX_CHARACTERS)
        case CellKind.FORMULA:
            return _give_form_to_matching_texts(values, _FORMULA, CellForm.FORMULA, FORMULA_MAX_CHARACTERS)
        case _:
            assert_never(kind)


def to_comparable_numbers_and_texts(values: ColumnCellPayloadsAndForms) -> tuple[pa.Array, pa.Array]:
    """Return the cells as conditions compare them: as numbers, and as texts. A date is the text of its local time."""
    numbers = replace_by_null_unless(values.payload, values.mask_of_forms(CellForm.NUMBER)).cast(pa.float64())
    texts = replace_by_null_unless(
        values.payload, values.mask_of_forms(CellForm.TEXT, CellForm.RICH, CellForm.LINK, CellForm.FORMULA)
    )
    if values.has_form(CellForm.BOOLEAN):
        words = pc.if_else(pc.equal(values.payload, "1"), "true", "false")
        texts = pc.coalesce(texts, replace_by_null_unless(words, values.mask_of_forms(CellForm.BOOLEAN)))
    for form in (CellForm.DAY, CellForm.MOMENT):
        if values.has_form(form):
            dates = format_serial_numbers_as_dates(
                replace_by_null_unless(values.payload, values.mask_of_forms(form)), date_only=form is CellForm.DAY
            )
            texts = pc.coalesce(texts, dates)
    return numbers, texts


def _convert_numbers_and_booleans_to_texts(values: ColumnCellPayloadsAndForms) -> ColumnCellPayloadsAndForms:
    payload = values.payload
    if values.has_form(CellForm.BOOLEAN):
        words = pc.if_else(pc.equal(payload, "1"), "true", "false")
        payload = pc.if_else(pa.array(values.mask_of_forms(CellForm.BOOLEAN)), words, payload)
    return values.replace_form_where(values.mask_of_forms(CellForm.NUMBER, CellForm.BOOLEAN), CellForm.TEXT, payload)


def _keep_long_numbers_as_texts(values: ColumnCellPayloadsAndForms) -> ColumnCellPayloadsAndForms:
    """Turn numbers that would lose digits into texts.

    A fraction of 16 or 17 digits is a number nevertheless, if it is what a computer's own number of 64 bits is written
    as: Excel holds the same number, though it shows 15 of its digits.
    """
    if not values.has_form(CellForm.NUMBER):
        return values
    numbers, where = _select_cells_of_form_and_mask(values, CellForm.NUMBER)
    exact = mask_numbers_excel_can_hold(numbers)
    if exact.all():
        return values
    exact[~exact] = mask_fractions_equal_to_float_repr(numbers.filter(pa.array(~exact)))
    long = _expand_mask(~exact, where)
    return replace(values.replace_form_where(long, CellForm.TEXT), long_numbers=int(long.sum()))


def _turn_date_texts_into_moments(
    values: ColumnCellPayloadsAndForms, zone: LocalTimeConverter, *, zoned_only: bool
) -> ColumnCellPayloadsAndForms:
    if not values.has_form(CellForm.TEXT):
        return values
    texts, where = _select_cells_of_form_and_mask(values, CellForm.TEXT)
    found = detect_moments(texts, zone, zoned_only=zoned_only)
    if found is None:
        return values
    mask = _expand_mask(found.found, where)
    if mask.all():
        return values.replace_form_where(mask, CellForm.MOMENT, format_as_serial_numbers(found.ms))
    payload = pc.replace_with_mask(values.payload, pa.array(mask), format_as_serial_numbers(found.ms))
    return values.replace_form_where(mask, CellForm.MOMENT, payload)


def _turn_number_texts_into_numbers(values: ColumnCellPayloadsAndForms) -> ColumnCellPayloadsAndForms:
    if not values.has_form(CellForm.TEXT):
        return values
    texts, where = _select_cells_of_form_and_mask(values, CellForm.TEXT)
    return values.replace_form_where(_expand_mask(mask_plain_numbers(texts), where), CellForm.NUMBER)


def _turn_flag_texts_into_booleans(values: ColumnCellPayloadsAndForms) -> ColumnCellPayloadsAndForms:
    words = pc.utf8_lower(values.payload)
    true, false = (pc.is_in(words, value_set=pa.array(names)) for names in (["true", "1"], ["false", "0"]))
    payload = pc.if_else(true, "1", pc.if_else(false, "0", values.payload))
    where: Mask = pc.or_(true, false).to_numpy(zero_copy_only=False) & values.mask_of_forms(
        CellForm.TEXT, CellForm.NUMBER
    )
    return values.replace_form_where(where, CellForm.BOOLEAN, payload)


def _give_form_to_matching_texts(
    values: ColumnCellPayloadsAndForms, pattern: str, form: CellForm, characters_max: int | None = None
) -> ColumnCellPayloadsAndForms:
    """Give texts that match another form, if they are not too long for it."""
    if not values.has_form(CellForm.TEXT):
        return values
    texts, where = _select_cells_of_form_and_mask(values, CellForm.TEXT)
    found = pc.match_substring_regex(texts, pattern)
    if characters_max is not None:
        # As Excel counts: whatever lies beyond the basic plane is two.
        units = pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, r"[^\x{0}-\x{ffff}]"))
        found = pc.and_(found, pc.less_equal(units, characters_max))
    return values.replace_form_where(_expand_mask(found.fill_null(False).to_numpy(zero_copy_only=False), where), form)


def _select_cells_of_form_and_mask(values: ColumnCellPayloadsAndForms, form: CellForm) -> tuple[pa.Array, Mask | None]:
    """Return the cells of one form and a mask of them; None if all others are empty."""
    if values.counts[form] + values.counts[CellForm.EMPTY] == len(values.forms):
        return values.payload, None
    where = values.mask_of_forms(form)
    return values.payload.filter(pa.array(where)), where


def _expand_mask(found: Mask, where: Mask | None) -> Mask:
    """Return a mask over the cells of one form as a mask over all cells."""
    if where is None:
        return found
    spread = np.zeros(len(where), np.bool_)
    spread[where] = found
    return spread


# Any other form is nested and becomes the text of its JSON.
_NESTED = len(CellForm)
_FORM_BY_FIRST_BYTE = np.full(256, _NESTED, np.uint8)
_FORM_BY_FIRST_BYTE[list(b"-0123456789")] = CellForm.NUMBER
_FORM_BY_FIRST_BYTE[list(b"tf")] = CellForm.BOOLEAN
_FORM_BY_FIRST_BYTE[ord("n")] = CellForm.EMPTY
_FORM_BY_FIRST_BYTE[ord('"')] = CellForm.TEXT


def read_json_cells(cells: pa.Array) -> ColumnCellPayloadsAndForms:
    """Read the cells of a binary column, whose bytes are JSON in UTF-8."""
    seen = view_bytes(cells)
    firsts = seen.bytes_at(seen.starts)
    forms = _FORM_BY_FIRST_BYTE.take(firsts)
    forms[seen.lengths == 0] = CellForm.EMPTY
    if cells.null_count:
        forms[~mask_not_null(cells)] = CellForm.EMPTY
    nested = forms == _NESTED
    payload = cells
    counts = np.bincount(forms, minlength=_NESTED + 1)
    if counts[CellForm.TEXT]:
        quoted = forms == CellForm.TEXT
        payload = pc.binary_slice(cells, 1, -1)
        if counts[CellForm.TEXT] + counts[CellForm.EMPTY] < len(cells):
            payload = pc.if_else(pa.array(quoted), payload, cells)
        if b"\\" in seen.join():
            escaped = pc.and_(pa.array(quoted), pc.match_substring(cells, b"\\").fill_null(False))
            payload = _replace_escaped_texts_by_decoded(payload, escaped, cells)
    payload = view_as_string(payload)
    if counts[CellForm.BOOLEAN]:
        true = pa.array(firsts == ord("t"))
        payload = pc.if_else(pa.array(forms == CellForm.BOOLEAN), pc.if_else(true, "1", "0"), payload)
    payload = replace_by_null_unless(payload, forms != CellForm.EMPTY)
    forms[nested] = CellForm.TEXT
    return ColumnCellPayloadsAndForms(payload, forms)


def _replace_escaped_texts_by_decoded(payload: pa.Array, escaped: pa.Array, cells: pa.Array) -> pa.Array:
    sources = cells.filter(escaped)
    if not len(sources):
        return payload
    texts = pa.array(_decode_texts(sources), pa.string()).cast(pa.binary())
    return texts if len(texts) == len(payload) else pc.replace_with_mask(payload, escaped, texts)


def _decode_texts(sources: pa.Array) -> list[str]:
    """Decode JSON strings."""
    listed = pc.binary_join_element_wise(sources, b",", b"")
    try:
        return msgspec.json.decode(b"[%b]" % view_bytes(listed).join()[:-1], type=list[str])
    except msgspec.DecodeError:
        # Some source writes half of a pair of surrogates: it is made safe, as no file could hold it.
        return [replace_invalid_characters(json.loads(source, strict=False)) for source in sources.to_pylist()]


def _read_cells_by_arrow_type(cells: pa.Array, zone: LocalTimeConverter) -> ColumnCellPayloadsAndForms:
    """Read cells by the type of their column alone."""
    kind = cells.type
    if pa.types.is_string(kind):
        return _build_values_of_form(cells, CellForm.TEXT)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _build_values_of_form(cells.cast(pa.string()), CellForm.NUMBER)
    if pa.types.is_floating(kind):
        return _read_floats(cells)
    if pa.types.is_boolean(kind):
        return _build_values_of_form(pc.if_else(cells, "1", "0"), CellForm.BOOLEAN)
    if pa.types.is_date(kind):
        return _build_moment_values(
            _view_milliseconds(cells.cast(pa.date32()).cast(pa.timestamp("ms"))), cells, CellForm.DAY
        )
    if pa.types.is_timestamp(kind):
        ms = _view_milliseconds(cells.cast(pa.timestamp("ms", tz=kind.tz), safe=False))
        return _build_moment_values(to_local_clipping_far_times(ms, zone) if kind.tz else ms, cells, CellForm.MOMENT)
    return _build_values_of_form(_cast_to_text_or_encode_as_json(cells), CellForm.TEXT)


def _build_values_of_form(payload: pa.Array, form: CellForm) -> ColumnCellPayloadsAndForms:
    return ColumnCellPayloadsAndForms(
        payload, np.where(mask_not_null(payload), np.uint8(form), np.uint8(CellForm.EMPTY))
    )


def _read_floats(cells: pa.Array) -> ColumnCellPayloadsAndForms:
    """Read floats as numbers; infinities and NaN, which Excel does not have, become texts."""
    payload = cells.cast(pa.float64()).cast(pa.string())
    found = _build_values_of_form(payload, CellForm.NUMBER)
    finite = pc.is_finite(cells.cast(pa.float64()))
    if pc.all(finite).as_py() is not False:
        return found
    odd = ~finite.fill_null(True).to_numpy(zero_copy_only=False)
    return ColumnCellPayloadsAndForms(payload, np.where(odd, np.uint8(CellForm.TEXT), found.forms))


def _view_milliseconds(times: pa.Array) -> Milliseconds:
    """Return the milliseconds of each cell; an arbitrary value where it is null."""
    return (
        np.frombuffer(times.buffers()[1], np.int64, len(times), times.offset * 8)
        if len(times)
        else np.empty(0, np.int64)
    )


def _build_moment_values(ms: Milliseconds, cells: pa.Array, form: CellForm) -> ColumnCellPayloadsAndForms:
    filled = mask_not_null(cells)
    held = mask_representable(ms)
    forms = np.where(filled, np.uint8(form), np.uint8(CellForm.EMPTY))
    payload = replace_by_null_unless(format_as_serial_numbers(ms), filled)
    if held[filled].all():
        return ColumnCellPayloadsAndForms(payload, forms)
    texts = cells.cast(pa.string())
    return ColumnCellPayloadsAndForms(
        pc.if_else(pa.array(held), payload, texts), np.where(filled & ~held, np.uint8(CellForm.TEXT), forms)
    )


def _cast_to_text_or_encode_as_json(cells: pa.Array) -> pa.Array:
    """Cast another type to text; nested values become JSON."""
    try:
        return cells.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        written = (
            None if cell is None else json.dumps(cell, ensure_ascii=False, default=str) for cell in cells.to_pylist()
        )
        return pa.array([text if text is None else replace_invalid_characters(text) for text in written], pa.string())
