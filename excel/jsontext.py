"""JSON text: columns of cells as a source wrote them, as texts and forms."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from excel import safe
from excel.buffers import as_string, only, valid, view
from excel.forms import Form, Values

# What is no other is nested and stands as its JSON.
_NESTED = len(Form)
_FORM_BY_FIRST_BYTE = np.full(256, _NESTED, np.uint8)
_FORM_BY_FIRST_BYTE[list(b"-0123456789")] = Form.NUMBER
_FORM_BY_FIRST_BYTE[list(b"tf")] = Form.BOOLEAN
_FORM_BY_FIRST_BYTE[ord("n")] = Form.EMPTY
_FORM_BY_FIRST_BYTE[ord('"')] = Form.TEXT


def read(cells: pa.Array) -> Values:
    """What the cells of a binary column are, whose bytes are JSON in UTF-8."""
    seen = view(cells)
    firsts = seen.at(seen.starts)
    forms = _FORM_BY_FIRST_BYTE.take(firsts)
    forms[seen.lengths == 0] = Form.EMPTY
    if cells.null_count:
        forms[~valid(cells)] = Form.EMPTY
    nested = forms == _NESTED
    payload = cells
    counts = np.bincount(forms, minlength=_NESTED + 1)
    if counts[Form.TEXT]:
        quoted = forms == Form.TEXT
        payload = pc.binary_slice(cells, 1, -1)
        if counts[Form.TEXT] + counts[Form.EMPTY] < len(cells):
            payload = pc.if_else(pa.array(quoted), payload, cells)
        if b"\\" in seen.joined():
            escaped = pc.and_(pa.array(quoted), pc.match_substring(cells, b"\\").fill_null(False))
            payload = _unescaped(payload, escaped, cells)
    payload = as_string(payload)
    if counts[Form.BOOLEAN]:
        true = pa.array(firsts == ord("t"))
        payload = pc.if_else(pa.array(forms == Form.BOOLEAN), pc.if_else(true, "1", "0"), payload)
    payload = only(payload, forms != Form.EMPTY)
    forms[nested] = Form.TEXT
    return Values(payload, forms)


def _unescaped(payload: pa.Array, escaped: pa.Array, cells: pa.Array) -> pa.Array:
    sources = cells.filter(escaped)
    if not len(sources):
        return payload
    texts = pa.array(_texts(sources), pa.string()).cast(pa.binary())
    return texts if len(texts) == len(payload) else pc.replace_with_mask(payload, escaped, texts)


def _texts(sources: pa.Array) -> list[str]:
    """What JSON texts say."""
    listed = pc.binary_join_element_wise(sources, b",", b"")
    try:
        return msgspec.json.decode(b"[%b]" % view(listed).joined()[:-1], type=list[str])
    except msgspec.DecodeError:
        # Some source writes half of a pair of surrogates: it is made safe, as no file could hold it.
        return [safe.text(json.loads(source, strict=False)) for source in sources.to_pylist()]
