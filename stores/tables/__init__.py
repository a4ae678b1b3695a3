"""The tables, one module a system."""

from __future__ import annotations

from typing import Final

SEALED: Final = {"is_sealed": True}
"""The `info` of a column that holds sealed values; `stores/sealed.py` lists all of them."""
