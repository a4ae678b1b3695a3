"""API keys: form, check digits, and what is stored of them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from domain.secrets import ALPHABET, KEY_ID_LENGTH, SECRET_LENGTH, ApiKeyText, digest_secret, parse_api_key


def _text(length: int) -> st.SearchStrategy[str]:
    return st.text(ALPHABET, min_size=length, max_size=length)


KEYS = st.builds(ApiKeyText, key_id=_text(KEY_ID_LENGTH), secret=_text(SECRET_LENGTH))


@given(KEYS)
def test_a_key_reads_back_from_its_text(key: ApiKeyText) -> None:
    """What the owner keeps leads back to the same id and secret."""
    assert parse_api_key(key.text) == key


@given(KEYS)
def test_a_key_is_recognisable_for_scanners(key: ApiKeyText) -> None:
    """A leaked key can be found by one pattern."""
    assert re.fullmatch(r"hlg_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}", key.text)


@given(KEYS, st.data())
def test_one_wrong_character_is_seen_offline(key: ApiKeyText, data: st.DataObject) -> None:
    """A typo anywhere fails the check digits, so that it never costs a look-up."""
    position = data.draw(st.integers(0, len(key.text) - 1))
    typed = data.draw(st.characters().filter(lambda character: character != key.text[position]))
    assert parse_api_key(key.text[:position] + typed + key.text[position + 1 :]) is None


@given(st.text())
def test_other_text_is_no_key(text: str) -> None:
    """Any text is accepted or refused, and never raises."""
    assert parse_api_key(text) is None


def test_the_check_digits_stay_what_they_were() -> None:
    """Keys handed out once stay valid in every later release."""
    key = ApiKeyText(key_id="A1b2C3d4E5f6", secret="0123456789abcdefghijABCDEFGHIJ01")
    assert key.text == "hlg_A1b2C3d4E5f6_0123456789abcdefghijABCDEFGHIJ011wGtWB"


def test_a_stored_digest_depends_on_the_pepper() -> None:
    """A stolen table is of no use without the pepper."""
    assert digest_secret("pepper one", "secret") != digest_secret("pepper two", "secret")
    assert len(digest_secret("pepper one", "secret")) == 32


def test_a_key_does_not_print_its_secret() -> None:
    """A key that reaches a log or a traceback gives nothing away."""
    key = ApiKeyText(key_id="A1b2C3d4E5f6", secret="0123456789abcdefghijABCDEFGHIJ01")
    assert key.secret not in repr(key)
