"""Links: read as they were written, and with no other key."""

from __future__ import annotations

import re
import string
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from api.downloads import files
from api.downloads.files import FileLink

PEPPER = "p" * 32

LINKS = st.builds(
    FileLink,
    project_id=st.from_regex(r"prj_[0-9A-Za-z]{16}", fullmatch=True),
    task_id=st.from_regex(r"dl_[0-9a-z]{24}", fullmatch=True),
    expires_at=st.integers(0, 2**33).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
LETTERS = st.sampled_from(string.ascii_letters + string.digits + "-_.")


@given(LINKS)
def test_a_link_is_read_as_it_was_written(link: FileLink) -> None:
    """What it opens and until when; and it has the form that the route asks for."""
    token = files.sign_link(PEPPER, link)
    assert files.parse_link_if_signature_matches(PEPPER, token) == link
    assert re.fullmatch(files.LINK_PATTERN, token)


@given(LINKS, st.data())
def test_no_character_of_a_link_can_be_changed(link: FileLink, data: st.DataObject) -> None:
    """Neither what it opens, nor until when, nor the signature."""
    token = files.sign_link(PEPPER, link)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(LETTERS.filter(lambda letter: letter != token[place]))
    found = files.parse_link_if_signature_matches(PEPPER, token[:place] + other + token[place + 1 :])
    # The last character of base64 carries unused bits: then it is the same link still.
    assert found is None or (found == link and token[place + 1 : place + 2] in (".", ""))


@given(LINKS)
def test_another_installation_s_link_is_none_of_ours(link: FileLink) -> None:
    """The key is the installation's own."""
    assert files.parse_link_if_signature_matches("q" * 32, files.sign_link(PEPPER, link)) is None


@given(st.text(max_size=300))
def test_noise_is_no_link(text: str) -> None:
    """Whatever is sent is read without an error."""
    assert files.parse_link_if_signature_matches(PEPPER, text) is None
