"""Forms: what cells can be in a book, and columns of cells of known form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from excel.buffers import Mask


class Form(IntEnum):
    """What a cell is in a book."""

    EMPTY = 0
    NUMBER = 1
    BOOLEAN = 2
    DAY = 3
    MOMENT = 4
    TEXT = 5
    RICH = 6
    LINK = 7
    FORMULA = 8


Forms: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Values:
    """Some cells of a column."""

    payload: pa.Array
    """Strings: a text, a number's digits, a date's serial number, 1 or 0; null where a cell is empty."""
    forms: Forms
    long_numbers: int = 0
    """How many are texts only because Excel cannot hold so many digits."""
    counts: tuple[int, ...] = field(init=False)
    """How many there are of each form."""

    def __post_init__(self) -> None:
        counts = np.bincount(self.forms, minlength=len(Form)).tolist()
        object.__setattr__(self, "counts", tuple(counts))

    def has(self, *forms: Form) -> bool:
        """Whether any cell is of one of these forms."""
        return any(self.counts[form] for form in forms)

    def mask(self, *forms: Form) -> Mask:
        """Which cells are of one of these forms."""
        found: Mask = self.forms == forms[0]
        for form in forms[1:]:
            found |= self.forms == form
        return found

    def turned(self, where: Mask, form: Form, payload: pa.Array | None = None) -> Values:
        """The same cells, but of another form where the mask holds."""
        forms = np.where(where, np.uint8(form), self.forms)
        return replace(self, payload=self.payload if payload is None else payload, forms=forms)
