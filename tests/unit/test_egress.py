"""The egress rules as tables: what is closed, what lies just beside it and is open, and every way to spell it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from domain import egress
from domain.faults import Invalid

PUBLIC_ONLY = egress.EgressRules.parse([], [80, 443])


def _words(table: str) -> list[str]:
    return table.split()


CLOSED = _words("""
    0.0.0.0 0.255.255.255
    10.0.0.0 10.255.255.255
    100.64.0.0 100.100.100.200 100.127.255.255
    127.0.0.0 127.0.0.1 127.255.255.255
    168.63.129.16
    169.254.0.0 169.254.169.254 169.254.255.255
    172.16.0.0 172.31.255.255
    192.0.0.0 192.0.0.192 192.0.0.255
    192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255
    198.18.0.0 198.19.255.255 198.51.100.7 203.0.113.7
    224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::808:808
    ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 0:0:0:0:0:ffff:a9fe:a9fe
    ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::a00:1
    100::1 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1
    2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:808:808:: 3fff::1 3fff:fff:ffff::1
    5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 febf::1 fec0::1 feff::1 ff02::1 ff0e::1
    1fff:ffff::1 4000::1
""")

# Both neighbours of each closed range, where they are themselves ordinary addresses.
OPEN = _words("""
    1.0.0.0 9.255.255.255 11.0.0.0
    100.63.255.255 100.128.0.0
    126.255.255.255 128.0.0.0
    168.63.129.15 168.63.129.17
    169.253.255.255 169.255.0.0
    172.15.255.255 172.32.0.0
    191.255.255.255 192.0.1.0 192.0.1.255 192.0.3.0
    192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
    8.8.8.8 223.255.255.255
    ::ffff:8.8.8.8 ::ffff:9.255.255.255
    2000::1 2000:ffff::1 2001:200::1 2001:db7:ffff::1 2001:db9::1 2001:4860:4860::8888
    2003::1 2606:4700::1111 2a00::1 3ffe::1 3fff:1000::1
""")


@pytest.mark.parametrize("address", CLOSED)
def test_closed_addresses(address: str) -> None:
    """Nothing that leads inside, to the link, to a group of machines or nowhere may be connected to."""
    assert not PUBLIC_ONLY.allows(egress.parse_address(address), 443)


@pytest.mark.parametrize("address", OPEN)
def test_open_neighbours(address: str) -> None:
    """Just outside each closed range the public internet goes on."""
    assert PUBLIC_ONLY.allows(egress.parse_address(address), 443)


@pytest.mark.parametrize("port", [0, 22, 25, 79, 81, 444, 5432, 6379, 7233, 65535])
def test_closed_ports(port: int) -> None:
    """Public addresses can be reached on the listed ports only."""
    assert not PUBLIC_ONLY.allows(egress.parse_address("8.8.8.8"), port)


DENIED_HOSTS = _words("""
    localhost LOCALHOST localhost. localhost.. ｌｏｃａｌｈｏｓｔ ⓛⓞⓒⓐⓛⓗⓞⓢⓣ loc\u00adalhost local\u200bhost
    localhost.localdomain a.localhost a.b.localhost
    printer.local printer.local. PRINTER。LOCAL printer．local printer｡local nas.lan box.home.arpa wiki.intranet
    db.internal metadata.google.internal metadata.google.internal. metadata.goog instance-data.ec2.internal
    kubernetes.default.svc.cluster.local kubernetes postgres metadata
    127.0.0.1 127.0.0.1. １２７.0.0.1 ①②⑦.⓪.⓪.① 127。0。0。1 169.254.169.254 ¹⁶⁹.254.169.254
    [::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1]
    [2002:7f00:1::] [fe80::1] [fd00:ec2::254] [FD00:EC2::254]
""")

MALFORMED_HOSTS = [
    *_words("2130706433 017700000001 0x7f000001 0X7F000001 127.1 127.0.1 0177.0.0.1 127.0.0.01 0x7f.0.0.1 0x7f.1 0x"),
    *_words("256.0.0.1 1.2.3.4.5 8.8.8.8.0x8 4294967297 ２１３０７０６４３３"),
    *_words("[fe80::1%25eth0] [fe80::1%eth0] [::1 ::1] ::1 [v1.x] [::1].example.com [1.2.3.4]"),
    *_words("user@example.com user:word@127.0.0.1 @example.com example.com@127.0.0.1 example.com＠127.0.0.1"),
    *_words("127.0.0.1\\@example.com example.com\\ example.com＼ exa%5cmple.com 127.0.0.1%2f@x %6c%6f%63alhost"),
    *_words("example.com:0 example.com:65536 example.com:99999 example.com: example.com:8a example.com:-80"),
    *_words("a..b .example.com -example.com example-.com exa,mple.com xn--\uffff.com"),
    *("", ".", "exam ple.com", " example.com", "a" * 64 + ".com", ".".join(["a" * 60] * 5)),
]


@pytest.mark.parametrize("host", DENIED_HOSTS)
def test_denied_hosts(host: str) -> None:
    """Names of inner networks and closed addresses are refused at the door, however they are spelled."""
    with pytest.raises(Invalid) as refused:
        PUBLIC_ONLY.require_allowed_url(f"http://{host}/rows")
    assert refused.value.record.code == "address_denied"


@pytest.mark.parametrize("host", MALFORMED_HOSTS)
def test_malformed_hosts(host: str) -> None:
    """What two programs could read differently is refused: odd numbers, credentials, backslashes, escapes."""
    with pytest.raises(Invalid) as refused:
        PUBLIC_ONLY.require_allowed_url(f"http://{host}/rows")
    assert refused.value.record.code == "invalid_url"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.com/rows",
            "//example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
        ),
        *(
            "http:example.com",
            "http:/example.com",
            "http:\\\\example.com",
            " http://example.com/",
            "javascript:alert(1)",
        ),
        *(
            "http://example.com/\r\nHost: x",
            "http://exa\tmple.com/",
            "http://example.com/\x00",
            "http://example.com/\x7f",
        ),
        *("http://example.com/\ud800", "http://example.com/\x85", "http://example.com/" + "a" * 8_000),
    ],
)
def test_malformed_urls(url: str) -> None:
    """Only http and https, no control characters, and not longer than other programs accept."""
    with pytest.raises(Invalid) as refused:
        PUBLIC_ONLY.require_allowed_url(url)
    assert refused.value.record.code == "invalid_url"


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://example.com", "http://example.com"),
        ("HTTPS://Example.COM:443/Rows?a=B#c", "https://example.com/Rows?a=B#c"),
        ("http://example.com.:80?x=1", "http://example.com?x=1"),
        ("https://例え.jp/行", "https://xn--r8jz45g.jp/行"),
        ("https://straße.de/", "https://xn--strae-oqa.de/"),
        ("https://ＥＸＡＭＰＬＥ．com/", "https://example.com/"),
        ("https://under_score.example.com/", "https://under_score.example.com/"),
        ("http://8.8.8.8/a?q=%2B%7E", "http://8.8.8.8/a?q=%2B%7E"),
        ("https://[2606:4700::1111]:443/", "https://[2606:4700::1111]/"),
        ("https://[::ffff:8.8.8.8]/", "https://8.8.8.8/"),
    ],
)
def test_ordinary_urls(url: str, read: str) -> None:
    """Ordinary URLs pass; host and port become plain, the rest stays as it was written."""
    assert PUBLIC_ONLY.require_allowed_url(url).url == read


@settings(deadline=None)
@given(
    st.text(alphabet=st.characters(), max_size=30)
    | st.from_regex(r"([a-z0-9.:@\[\]%\\/?#。１⓪\u00ad-]|xn--){0,20}", fullmatch=True)
)
def test_one_reading(authority: str) -> None:
    """A URL that passes is read by the HTTP library as the very host and port that were judged, and never chokes it."""
    try:
        target = egress.parse_url(f"http://{authority}")
    except Invalid:
        return
    url = URL(target.url)
    assert (url.raw_host, url.port) == (str(target.host), target.port)


def test_credentials_are_not_repeated() -> None:
    """The refusal of a URL with a password does not carry it into logs and messages."""
    with pytest.raises(Invalid) as refused:
        PUBLIC_ONLY.require_allowed_url("https://me:planted-secret@example.com/")
    assert "planted-secret" not in refused.value.record.sentence


@pytest.mark.parametrize(
    ("entry", "opened", "closed"),
    [
        ("127.0.0.1:8080", [("127.0.0.1", 8080)], [("127.0.0.1", 8081), ("127.0.0.2", 8080), ("::1", 8080)]),
        ("[::1]:8080", [("::1", 8080)], [("::1", 8081), ("127.0.0.1", 8080)]),
        ("10.1.2.3", [("10.1.2.3", 80), ("10.1.2.3", 5432)], [("10.1.2.2", 80), ("10.1.2.4", 80)]),
        ("10.1.0.0/16", [("10.1.0.0", 1), ("10.1.255.255", 80)], [("10.0.255.255", 80), ("10.2.0.0", 80)]),
        ("fd00:1::/32", [("fd00:1::1", 80)], [("fd00:2::1", 80), ("10.0.0.1", 80)]),
        ("8.8.8.8:9000", [("8.8.8.8", 9000), ("8.8.8.8", 443)], [("8.8.8.8", 9001), ("8.8.4.4", 9000)]),
        ("127.0.0.1:80", [("::ffff:127.0.0.1", 80)], [("::ffff:127.0.0.1", 443), ("::127.0.0.1", 80)]),
    ],
)
def test_openings(entry: str, opened: list[tuple[str, int]], closed: list[tuple[str, int]]) -> None:
    """An entry of the allow list opens exactly what it names."""
    rules = egress.EgressRules.parse([entry], [80, 443])
    assert all(rules.allows(egress.parse_address(address), port) for address, port in opened)
    assert not any(rules.allows(egress.parse_address(address), port) for address, port in closed)


@pytest.mark.parametrize(
    "entry",
    [
        *_words("localhost:8080 example.com 10.0.0.1/8 10.0.0.0/33 10.0.0.1:0 10.0.0.1:65536 10.0.0.1:x"),
        *_words("::1]:80 [::1] 10.1 [10.0.0.1]:80"),
        *("", " 10.0.0.1", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:80", "::ffff:0:0/96", "10.0.0.0/8:80", "fe80::1%eth0"),
    ],
)
def test_wrong_openings(entry: str) -> None:
    """A wrong entry stops the start with a sentence that quotes it."""
    with pytest.raises(ValueError, match="Write") as wrong:
        egress.EgressRules.parse([entry], [80])
    assert repr(entry) in str(wrong.value)


def test_door_knows_openings() -> None:
    """At the door an opened address passes on its port, and its other ports are refused."""
    rules = egress.EgressRules.parse(["127.0.0.1:8123"], [80, 443])
    rules.require_allowed_url("http://127.0.0.1:8123/rows")
    for url in ("http://127.0.0.1:8124/", "http://127.0.0.1/", "http://localhost:8123/", "http://example.com:8124/"):
        with pytest.raises(Invalid):
            rules.require_allowed_url(url)


def test_inner_names_need_an_opened_network() -> None:
    """Where a network is opened, inner names pass the door and their addresses decide; our own machine's never do."""
    rules = egress.EgressRules.parse(["10.0.0.0/8"], [80, 443])
    rules.require_allowed_url("http://erp.shop.svc.cluster.local:9000/rows")
    for url in ("http://localhost/", "http://metadata.google.internal/", "http://192.168.0.1/"):
        with pytest.raises(Invalid):
            rules.require_allowed_url(url)


@pytest.mark.parametrize(
    ("allow", "hint"),
    [
        (["127.0.0.1:8091"], "Write 127.0.0.1 instead, whose port 8091 is open."),
        ([], """HAULAGE_GUARD__ALLOW='["127.0.0.1:8091"]'"""),
    ],
)
def test_a_refusal_says_what_to_write(allow: list[str], hint: str) -> None:
    """The address that is open already, or the whole setting."""
    with pytest.raises(Invalid) as refused:
        egress.EgressRules.parse(allow, ()).require_allowed_url("http://localhost:8091/rows")
    assert hint in refused.value.record.hint
