"""Redaction: what only a source may know is struck out of what it is quoted with."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from domain.faults import SourceFault
from domain.redaction import SecretRedactor

TOKEN = 'sk/live+4f"9c1e77ab2&d'
BASIC = base64.b64encode(b"warehouse:hunter/2").decode()


@pytest.mark.parametrize(
    ("headers", "said", "struck"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, f"“no such token {TOKEN}”", "“no such token [secret]”"),
        ({"Authorization": f"Bearer {TOKEN}"}, f"“Bearer {TOKEN} and {TOKEN}”", "“Bearer [secret] and [secret]”"),
        ({"X-Key": "ab 12345 cd"}, "“12345, ab 12345 cd”", "“[secret], [secret]”"),
        ({"Cookie": "session=f00dcafe99; theme=dark1"}, "“f00dcafe99 has no dark1”", "“[secret] has no [secret]”"),
        ({"Authorization": f"Basic {BASIC}"}, f"“{BASIC}”", "“[secret]”"),
        ({"Authorization": f"Basic {BASIC}"}, "“warehouse has no hunter/2”", "“[secret] has no [secret]”"),
        ({"Authorization": f"basic {BASIC.rstrip('=')}"}, "“hunter/2 is wrong”", "“[secret] is wrong”"),
        ({"Authorization": "Basic no-base64!"}, "“no-base64!”", "“[secret]”"),
    ],
)
def test_values_of_headers_are_struck(headers: dict[str, str], said: str, struck: str) -> None:
    """Whole or in tokens, and what credentials say once they are decoded."""
    assert SecretRedactor("", headers).redact(said) == struck


@pytest.mark.parametrize(
    "spelt",
    [
        json.dumps(TOKEN),
        json.dumps(TOKEN).replace("/", "\\/"),
        quote(TOKEN),
        quote(TOKEN, safe=""),
        TOKEN.replace("&", "&amp;").replace('"', "&quot;"),
        TOKEN.replace("&", "\\u0026"),
    ],
)
def test_a_secret_is_known_in_other_spellings(spelt: str) -> None:
    """Within JSON, an address or HTML."""
    said = SecretRedactor("", {"X-Token": TOKEN}).redact(f"The source answered 401: “{spelt}”.")
    assert "4f" not in said
    assert "[secret]" in said


@pytest.mark.parametrize("kept", range(1, len(TOKEN)))
def test_a_quote_that_ends_within_a_secret_shows_less_of_it_than_four_letters(kept: int) -> None:
    """An excerpt is cut at its length, wherever that is."""
    said = SecretRedactor("", {"X-Token": TOKEN}).redact(f"“your token {TOKEN[:kept]}…”")
    assert TOKEN[:4] not in said


@pytest.mark.parametrize(
    ("query", "secret"),
    [
        ("access_token=abc", "abc"),
        ("X-Amz-Signature=00ff11ee22", "00ff11ee22"),
        ("p=9f8e7d6c5b4a39281706", "9f8e7d6c5b4a39281706"),
        ("day=1&appkey=%E5%AF%86%E7%A0%81123", "密码123"),
    ],
)
def test_secrets_of_an_address_are_struck(query: str, secret: str) -> None:
    """Those whose name says what they are, and those that look like nothing else."""
    redactor = SecretRedactor(f"https://example.com/rows?{query}", {})
    assert redactor.redact(f"“not allowed: {secret}”") == "“not allowed: [secret]”"


def test_what_is_no_secret_is_told() -> None:
    """The words of an address help to see what was wrong, and our own words are not changed."""
    redactor = SecretRedactor("https://example.com/sales-2026/rows?from=2026-01-01&report=turnover", {"X-Shop": "page"})
    said = "The source answered 400 for page 3: “no report turnover from 2026-01-01 for shop page”."
    assert redactor.redact(said) == said.replace("shop page", "shop [secret]")


def test_a_fault_is_read_the_same_everywhere() -> None:
    """Its record and its text as an exception say the same words."""
    fault = SourceFault("source_status", "The source answered 401: “abc”.", "Send a token.", transient=True)
    fault.replace_message("The source answered 401: “[secret]”.")
    assert str(fault) == fault.record.sentence == "The source answered 401: “[secret]”. Send a token."
    assert fault.transient
