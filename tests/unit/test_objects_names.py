"""File names and ETags in headers: pure rules."""

from __future__ import annotations

from email.message import Message

import pytest
from aiohttp.multipart import content_disposition_filename, parse_content_disposition
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from infra.component_settings import ObjectSettings
from infra.objects import ObjectStore, build_content_disposition, compute_composite_etag

# What no name keeps: control and format characters and unpaired surrogates.
NAMES = st.text(st.characters(blacklist_categories=["Cc", "Cf", "Cs"]), min_size=1).map(str.strip).filter(bool)


@given(NAMES)
def test_any_name_survives_the_header(name: str) -> None:
    """Whatever the script, the header is printable ASCII and a client reads back the very name."""
    header = build_content_disposition(name)
    kind, parameters = parse_content_disposition(header)

    assert header.isascii()
    assert header.isprintable()
    assert kind == "attachment"
    assert content_disposition_filename(parameters) == name


@given(NAMES)
def test_a_reader_of_the_plain_name_alone_gets_one(name: str) -> None:
    """The fallback needs no escapes and names no folder."""
    message = Message()
    message["Content-Disposition"] = build_content_disposition(name).split("; filename*=")[0]
    fallback = message.get_filename()

    assert fallback
    assert not set(fallback) & set('"\\/%;')


@pytest.mark.parametrize(
    ("name", "fallback", "encoded"),
    [
        ("orders.csv", "orders.csv", "orders.csv"),
        ("Zürich.csv", "Zurich.csv", "Z%C3%BCrich.csv"),
        ("订单.xlsx", "__.xlsx", "%E8%AE%A2%E5%8D%95.xlsx"),
        ('a"b/c.csv', "a_b_c.csv", "a%22b%2Fc.csv"),
        ("it's (1).csv", "it's (1).csv", "it%27s%20%281%29.csv"),
        ("a\r\nSet-Cookie: x.csv", "aSet-Cookie: x.csv", "aSet-Cookie%3A%20x.csv"),
        ("\u202egpj.exe", "gpj.exe", "gpj.exe"),
        ("\x00\n", "download", "download"),
        ("", "download", "download"),
        ("\u0301", "download", "%CC%81"),
        ("\u00a8", "download", "%C2%A8"),
    ],
)
def test_names_are_written_both_ways(name: str, fallback: str, encoded: str) -> None:
    """Plain for old readers, encoded for all others; what splits headers or disguises endings is gone."""
    assert build_content_disposition(name) == f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{encoded}"


def test_the_composite_is_the_hash_of_the_hashes() -> None:
    """As S3 computes it for two parts that hold `a` and `b`."""
    parts = ["0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"]

    assert compute_composite_etag(parts) == "96e024ba2074fe77e8e965ba43a704be-2"


@pytest.mark.parametrize("etag", ["107594f479793ab219801e71d92f2a25-3", "", '"d41d8cd98f00b204e9800998ecf8427e"'])
def test_a_composite_is_not_guessed(etag: str) -> None:
    """Parts that were copied or encrypted have ETags that say nothing about their content."""
    with pytest.raises(ValueError, match="not the MD5 of a part"):
        compute_composite_etag([etag])


@pytest.mark.parametrize("base", ["", "https://files.example.com", "http://127.0.0.1:8333", "https://cdn.example.com/"])
def test_a_public_base_is_scheme_and_host(base: str) -> None:
    """What can be signed for is taken."""
    assert ObjectSettings(public_base=base).public_base == base


@pytest.mark.parametrize("base", ["files.example.com", "https://", "https://example.com/files", "ftp://example.com"])
def test_a_public_base_with_more_or_less_is_refused(base: str) -> None:
    """The sentence shows what was set and how to write it."""
    with pytest.raises(ValidationError, match="Write it like https://"):
        ObjectSettings(public_base=base)


@pytest.mark.parametrize("own", ["", "haulage"])
async def test_no_installation_is_deleted_as_a_whole(own: str) -> None:
    """An empty prefix is a mistake, not a wish, whether or not the installation has a prefix of its own."""
    store = ObjectStore(ObjectSettings(prefix=own, access_key="own", secret_key=SecretStr("own")))
    with pytest.raises(ValueError, match="all objects of the installation"):
        await store.delete_prefix("")
    await store.close()
