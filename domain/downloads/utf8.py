"""Whether bytes are UTF-8, without making text of them."""

from __future__ import annotations

from array import array


def is_valid(text: bytes) -> bool:
    """Whether bytes are UTF-8.

    Arrow looks 18 times faster than `bytes.decode`, which builds a string that nobody wants.
    """
    if text.isascii():
        return True
    # The plan and the door import this floor, and must not pay for Arrow.
    import pyarrow as pa  # noqa: PLC0415

    buffers = [None, pa.py_buffer(array("i", (0, len(text)))), pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
