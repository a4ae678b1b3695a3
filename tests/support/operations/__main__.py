"""Write both tables of `docs/how-to/operate.md`: `python -m tests.support.operations`."""

from __future__ import annotations

from tests.support.operations.page import write_page

if __name__ == "__main__":
    write_page()
