"""The archive of several files: every reader opens it, and its limits are kept before a byte is written."""

from __future__ import annotations

import io
import zipfile
import zlib
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.staging import (
    ZIP_MAX_BYTES,
    ZIP_MAX_MEMBERS,
    ZipMemberSizeAndChecksum,
    ZipTooLarge,
    encode_central_directory,
    encode_local_header,
    require_zip_limits,
)

MOMENT = datetime(2026, 11, 20, 13, 45, 58)  # noqa: DTZ001 - the format knows no zones

names = st.text(st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=30)


def write_archive(files: dict[str, bytes]) -> bytes:
    members = [
        ZipMemberSizeAndChecksum(name=name, bytes=len(data), crc32=zlib.crc32(data)) for name, data in files.items()
    ]
    content = b"".join(encode_local_header(member, MOMENT) + files[member.name] for member in members)
    return content + encode_central_directory(members, MOMENT)


def make_member(size: int) -> ZipMemberSizeAndChecksum:
    return ZipMemberSizeAndChecksum(name="a", bytes=size, crc32=0)


@given(st.dictionaries(names, st.binary(max_size=2_000), max_size=8))
def test_what_goes_in_comes_out(files: dict[str, bytes]) -> None:
    """Names of any letters and contents of any bytes, in order, with their time."""
    with zipfile.ZipFile(io.BytesIO(write_archive(files))) as archive:
        assert archive.testzip() is None
        assert {info.filename: archive.read(info) for info in archive.infolist()} == files
        assert {info.date_time for info in archive.infolist()} <= {(2026, 11, 20, 13, 45, 58)}


@pytest.mark.parametrize(
    "members",
    [[make_member(ZIP_MAX_BYTES)], [make_member(ZIP_MAX_BYTES // 2)] * 2, [make_member(0)] * (ZIP_MAX_MEMBERS + 1)],
    ids=["one too large", "all too large", "too many"],
)
def test_more_than_the_format_holds_is_refused(members: list[ZipMemberSizeAndChecksum]) -> None:
    """The larger format is not read by every program, so it is never written."""
    with pytest.raises(ZipTooLarge, match=r"[\d,]+ files of [\d,]+ bytes"):
        require_zip_limits(members)
