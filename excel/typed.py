"""Typed: columns of Arrow types other than JSON text, as texts and forms of cells."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from excel import moments, safe
from excel.buffers import only, valid
from excel.forms import Form, Values
from excel.zones import Milliseconds, Zone


def read(cells: pa.Array, zone: Zone) -> Values:
    """What the cells are, by their column's type alone."""
    kind = cells.type
    if pa.types.is_string(kind):
        return _all(cells, Form.TEXT)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _all(cells.cast(pa.string()), Form.NUMBER)
    if pa.types.is_floating(kind):
        return _floats(cells)
    if pa.types.is_boolean(kind):
        return _all(pc.if_else(cells, "1", "0"), Form.BOOLEAN)
    if pa.types.is_date(kind):
        return _moments(_raw(cells.cast(pa.date32()).cast(pa.timestamp("ms"))), cells, Form.DAY)
    if pa.types.is_timestamp(kind):
        ms = _raw(cells.cast(pa.timestamp("ms", tz=kind.tz), safe=False))
        return _moments(moments.local(ms, zone) if kind.tz else ms, cells, Form.MOMENT)
    return _all(_written(cells), Form.TEXT)


def _all(payload: pa.Array, form: Form) -> Values:
    return Values(payload, np.where(valid(payload), np.uint8(form), np.uint8(Form.EMPTY)))


def _floats(cells: pa.Array) -> Values:
    """Numbers as they are; infinities and what is not a number are none for Excel, and stand there as texts."""
    payload = cells.cast(pa.float64()).cast(pa.string())
    found = _all(payload, Form.NUMBER)
    finite = pc.is_finite(cells.cast(pa.float64()))
    if pc.all(finite).as_py() is not False:
        return found
    odd = ~finite.fill_null(True).to_numpy(zero_copy_only=False)
    return Values(payload, np.where(odd, np.uint8(Form.TEXT), found.forms))


def _raw(times: pa.Array) -> Milliseconds:
    """The milliseconds of each cell, and anything where it is null."""
    return (
        np.frombuffer(times.buffers()[1], np.int64, len(times), times.offset * 8)
        if len(times)
        else np.empty(0, np.int64)
    )


def _moments(ms: Milliseconds, cells: pa.Array, form: Form) -> Values:
    filled = valid(cells)
    held = moments.held(ms)
    forms = np.where(filled, np.uint8(form), np.uint8(Form.EMPTY))
    payload = only(moments.serials(ms), filled)
    if held[filled].all():
        return Values(payload, forms)
    texts = cells.cast(pa.string())
    return Values(pc.if_else(pa.array(held), payload, texts), np.where(filled & ~held, np.uint8(Form.TEXT), forms))


def _written(cells: pa.Array) -> pa.Array:
    """Any other type as text: its own spelling, or JSON for what is nested."""
    try:
        return cells.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        written = (
            None if cell is None else json.dumps(cell, ensure_ascii=False, default=str) for cell in cells.to_pylist()
        )
        return pa.array([text if text is None else safe.text(text) for text in written], pa.string())
