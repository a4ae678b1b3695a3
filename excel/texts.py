"""Texts: columns of texts brought within the limits of cells and spelled for XML, as `safe` does for one text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from excel import safe
from excel.buffers import Mask, View, view

_NOT_CHARACTERS = ("\ufffe", "\uffff")
_FIRST_OF_NOT_CHARACTERS = 0xEF
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_ESCAPED = r"[\x00-\x08\x0b-\x1f]|_x[0-9A-Fa-f]{4}_"
_FIRST_PRINTED = 0x20
_SPACE, _TAB, _LINE_FEED = 0x20, 0x09, 0x0A


def bounded(texts: pa.Array) -> tuple[pa.Array, int]:
    """The texts within the limits of cells, and how many had to be changed for it."""
    seen = view(texts)
    lengths = seen.lengths
    # A byte is never more than one character, so that few columns are looked at any closer.
    suspects = lengths > safe.LINE_FEEDS_MAX
    if not suspects.any():
        return texts, 0
    suspects = lengths > safe.CHARACTERS_MAX
    if (seen.data == _LINE_FEED).any():
        feeds = pc.count_substring(texts, "\n").fill_null(0).to_numpy(zero_copy_only=False)
        suspects |= feeds > safe.LINE_FEEDS_MAX
    if not suspects.any():
        return texts, 0
    found = [safe.bounded(text) for text in texts.filter(pa.array(suspects)).to_pylist()]
    changed = pc.replace_with_mask(texts, pa.array(suspects), pa.array([text for text, _ in found], pa.string()))
    return changed, sum(was_cut for _, was_cut in found)


def xml(texts: pa.Array) -> pa.Array:
    """The texts as they stand within an element of XML."""
    seen = view(texts)
    joined = seen.joined()
    if len(seen.data) and seen.data.max() >= _FIRST_OF_NOT_CHARACTERS:
        for character in _NOT_CHARACTERS:
            if character.encode() in joined:
                texts = pc.replace_substring(texts, character, safe.REPLACEMENT)
    spelled = texts
    for sign, entity in _ENTITIES:
        if sign.encode() in joined:
            spelled = pc.replace_substring(spelled, sign, entity)
    # To look for one byte takes a tenth of the time of looking for two.
    if (b"_" in joined and b"_x" in joined) or _has_controls(seen):
        rare = pc.match_substring_regex(texts, _ESCAPED).fill_null(False)
        spelled = replaced(spelled, rare, texts, safe.xml)
    return spelled


def edged_by_space(texts: pa.Array) -> Mask:
    """Which texts begin or end with white space, which a reader of XML drops unless it is told."""
    seen = view(texts)
    if not len(seen.data):
        return np.zeros(len(texts), np.bool_)
    found: Mask = (seen.at(seen.starts) <= _SPACE) | (seen.at(seen.ends - 1) <= _SPACE)
    return found & (seen.lengths > 0)


def replaced(texts: pa.Array, where: pa.Array, sources: pa.Array, function: Callable[[str], str]) -> pa.Array:
    """The texts, but where the mask holds what a function makes of the source beside."""
    made = [function(source) for source in sources.filter(where).to_pylist()]
    return pc.replace_with_mask(texts, where, pa.array(made, pa.string())) if made else texts


def _has_controls(seen: View) -> bool:
    if not len(seen.data) or seen.data.min() >= _FIRST_PRINTED:
        return False
    controls = seen.data[seen.data < _FIRST_PRINTED]
    return bool(((controls != _TAB) & (controls != _LINE_FEED)).any())
