"""UTF-8 is judged as Python judges it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads import envelope


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass")))
def test_the_same_bytes_are_taken(data: bytes) -> None:
    """What Python decodes is valid, and nothing else."""
    try:
        data.decode()
        decodes = True
    except UnicodeDecodeError:
        decodes = False

    assert envelope.is_valid_utf8(data) is decodes


@pytest.mark.parametrize("data", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff", "é".encode()[:1]])
def test_look_alikes_are_refused(data: bytes) -> None:
    """Surrogates, overlong forms, what lies beyond Unicode, and half a character."""
    assert not envelope.is_valid_utf8(data)
