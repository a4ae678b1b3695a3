"""File names are hostile, and arrive intact where they can."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.models import FILE_NAME_MAX_BYTES, clean_file_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("订单.csv", "订单.csv"),
        ("orders", "orders.csv"),
        ("orders.CSV", "orders.csv"),
        ("report.v2", "report.v2.csv"),
        ("../../etc/passwd", "_.._etc_passwd.csv"),
        ("a\r\nSet-Cookie: x", "a__Set-Cookie_ x.csv"),
        ("\u202egpj.exe", "gpj.exe.csv"),
        ("...", "download.csv"),
        ("", "download.csv"),
        ("🚚 haulage", "🚚 haulage.csv"),
    ],
)
def test_names(name: str, expected: str) -> None:
    """Only what is dangerous is changed."""
    assert clean_file_name(name, "csv") == expected


@given(st.text())
def test_any_name_becomes_a_safe_one(name: str) -> None:
    """Whatever comes in, what goes out fits a file system and a header."""
    clean = clean_file_name(name, "csv")

    assert clean.endswith(".csv")
    assert not clean.startswith(".")
    assert len(clean.encode()) <= FILE_NAME_MAX_BYTES
    assert not set(clean) & set('/\\:*?"<>|\r\n\0')
    assert clean_file_name(clean, "csv") == clean
