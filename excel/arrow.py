"""PyArrow without pandas: modules that make columns import `pa` from here.

PyArrow imports pandas for the first column that it makes, in case it is ever given a column of pandas: 0.28 s and 44 MB
of each process that writes a file. It is shown an empty module once, and looks no more. Reports, which need pandas,
import it themselves, after this module, and make columns of lists.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

import pyarrow as pa

__all__ = ["pa"]


def _show_pyarrow_an_empty_pandas() -> None:
    empty = ModuleType("pandas")
    empty.__dict__["__version__"] = "0"
    with warnings.catch_warnings(action="ignore"):  # that this version is too old
        sys.modules["pandas"] = empty
        try:
            pa.array([""])
        finally:
            del sys.modules["pandas"]


if "pandas" not in sys.modules:
    _show_pyarrow_an_empty_pandas()
