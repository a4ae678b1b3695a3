"""Egress rules: which URLs, host names, addresses and ports may be called for a user; no name is resolved here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

import idna

from domain.faults import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_MAX_CHARACTERS = 8_000
NAME_MAX_CHARACTERS = 253

# Our own lists, because `ipaddress.is_global` of Python 3.11 calls 6to4, NAT64, multicast and site-local global,
# and knows nothing of 168.63.129.16, where Azure answers every virtual machine.
CLOSED_V4 = (
    IPv4Network("0.0.0.0/8"),  # "this" network; Linux takes 0.0.0.0 for itself
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # carrier NAT; Alibaba's metadata answers at 100.100.100.200
    IPv4Network("127.0.0.0/8"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("169.254.0.0/16"),  # link-local, with the metadata of most clouds
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),  # protocol assignments; Oracle's metadata answers at 192.0.0.192
    IPv4Network("192.0.2.0/24"),
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),
    IPv4Network("198.51.100.0/24"),
    IPv4Network("203.0.113.0/24"),
    IPv4Network("224.0.0.0/3"),  # multicast, reserved, broadcast
)
# Outside 2000::/3 lie loopback, IPv4-compatible, NAT64, ULA, link-local, site-local, multicast and segment routing.
# Inside it: Teredo and its neighbours (2001::/23), documentation, 6to4.
GLOBAL_V6 = IPv6Network("2000::/3")
CLOSED_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_MAPPED_V4 = IPv6Network("::ffff:0:0/96")

_FORBIDDEN_NAMES = ("localhost", "localhost.localdomain", "metadata.google.internal", "metadata.goog")
_LOOPBACK = IPv4Address("127.0.0.1")
_INTERNAL_SUFFIXES = (".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home.arpa")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f.]*:[0-9a-f:.]*)\]|([^\[\]:/?#@\\%\s]+))(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_WITH_PORT = re.compile(r"(?:\[([0-9a-fA-F.]*:[0-9a-fA-F:.]*)\]|([0-9.]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class UrlParts:
    """The parts of a URL; as text its host and port, which a message may quote."""

    scheme: str
    host: str | Address
    port: int
    rest: str

    @property
    def path(self) -> str:
        """The path as it is written, without query and fragment."""
        return re.split(r"[?#]", self.rest, maxsplit=1)[0]

    @property
    def url(self) -> str:
        """The URL rebuilt, so that every program reads the host and port that were checked."""
        return f"{self.scheme}://{self}{self.rest}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if isinstance(self.host, IPv6Address) else str(self.host)
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AllowListEntry:
    """An entry of the allow list; without a port it allows every port."""

    network: Network
    port: int | None

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Parse an address, a network or an address:port; raise ValueError for anything else."""
        with_port = _WITH_PORT.fullmatch(entry)
        bracketed, plain, port = with_port.groups() if with_port else (None, entry, None)
        try:
            if "%" in entry:
                raise ValueError("zones cannot be told apart")
            allowed = cls(ip_network(bracketed or plain), None if port is None else _parse_port(port))
        except ValueError as error:
            raise ValueError(
                f"The allow list has the entry {entry!r}, which cannot be read ({error}). Write an address (10.1.2.3), "
                "a network (10.1.0.0/16) or an address with a port (10.1.2.3:8080, [fd00::1]:8080)."
            ) from None
        if isinstance(allowed.network, IPv6Network) and allowed.network.subnet_of(_MAPPED_V4):
            raise ValueError(f"The allow list has the entry {entry!r}, an IPv4 address in IPv6 form. Write it as IPv4.")
        return allowed

    def allows(self, address: Address, port: int) -> bool:
        """Return whether this entry allows the port of the address."""
        return self.port in (None, port) and address in self.network


@dataclass(frozen=True, slots=True)
class EgressRules:
    """What may be reached: public addresses on `ports`, the allow list, and the installation's own route."""

    allow_list: tuple[AllowListEntry, ...]
    ports: frozenset[int]
    own: UrlParts | None = None
    """The one route of the installation itself that is allowed, whatever address its name resolves to."""

    @classmethod
    def parse(cls, allow: Iterable[str], ports: Iterable[int], own: str = "") -> Self:
        """Parse the settings; raise ValueError for a wrong entry. `own` is a URL such as http://api:8080/v1/rows."""
        return cls(tuple(map(AllowListEntry.parse, allow)), frozenset(ports), own=parse_url(own) if own else None)

    def is_own_route(self, target: UrlParts) -> bool:
        """Return whether the target is the installation's own route that is allowed; its query may be any."""
        return self._is_at_own_host(target) and self.own is not None and target.path == self.own.path

    def _is_at_own_host(self, target: UrlParts) -> bool:
        return self.own is not None and (target.host, target.port) == (self.own.host, self.own.port)

    def allows(self, address: Address, port: int) -> bool:
        """Return whether a connection to this address and port may be opened."""
        if any(allowed.allows(address, port) for allowed in self.allow_list):
            return True
        return port in self.ports and is_public(address)

    def require_allowed_url(self, url: str, *, is_own_open: bool = False) -> UrlParts:
        """Return the target of a URL; raise Invalid if it is forbidden whatever its name resolves to.

        Args:
            is_own_open: Whether the installation's own route is open, as it is to sources of downloads.
        """
        target = parse_url(url)
        if is_own_open and self.is_own_route(target):
            return target
        if self._is_at_own_host(target):
            raise build_denied_fault(
                f"{target} is this installation itself, which opens one route of its own only, "
                "as a source of downloads."
            )
        if isinstance(target.host, str):
            self._require_allowed_name(target.host, target.port)
        elif not self.allows(target.host, target.port) and not is_public(target.host):
            raise build_denied_fault(
                f"The address {target.host} is private, reserved or not open to sources.",
                example=f"[{target.host}]:{target.port}"
                if isinstance(target.host, IPv6Address)
                else f"{target.host}:{target.port}",
            )
        if not self._could_be_allowed_after_name_lookup(target):
            allowed = ", ".join(map(str, sorted(self.ports)))
            raise build_denied_fault(f"Port {target.port} is not open to sources; open ports are {allowed}.")
        return target

    def _could_be_allowed_after_name_lookup(self, target: UrlParts) -> bool:
        if not isinstance(target.host, str):
            return self.allows(target.host, target.port)
        return target.port in self.ports or any(allowed.port in (None, target.port) for allowed in self.allow_list)

    def _require_allowed_name(self, name: str, port: int) -> None:
        if name in _FORBIDDEN_NAMES:
            message = f"The host name {name} always names a machine of this installation."
            if not name.startswith("localhost"):
                raise build_denied_fault(message)
            is_open = self.allows(_LOOPBACK, port)
            hint = f"Write {_LOOPBACK} instead, whose port {port} is open." if is_open else ""
            raise build_denied_fault(message, hint, example=f"{_LOOPBACK}:{port}")
        # Where the operator has allowed whole networks, sources may have internal names; their addresses decide.
        is_internal = "." not in name or name.endswith(_INTERNAL_SUFFIXES)
        if is_internal and all(allowed.port is not None for allowed in self.allow_list):
            raise build_denied_fault(f"The host name {name} belongs to an internal network.")


def build_denied_fault(message: str, hint: str = "", *, example: str = "10.1.2.3:8080") -> Invalid:
    """Return the fault for a forbidden target; it never names an address that the user did not write.

    Args:
        example: What the operator's setting could hold.
    """
    setting = f"HAULAGE_GUARD__ALLOW='[\"{example}\"]'"
    hint = hint or f"Use a public address, or ask the operator to open it by its address and port, as in {setting}."
    return Invalid("address_denied", message, hint)


def parse_address(text: str) -> Address:
    """Parse an address; an IPv4-mapped IPv6 address becomes the IPv4 address that it reaches."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def is_public(address: Address) -> bool:
    """Return whether the address is public."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in CLOSED_V4)
    return address in GLOBAL_V6 and not any(address in network for network in CLOSED_V6)


def parse_url(url: str) -> UrlParts:
    """Return the target of a URL; raise Invalid if two programs could read it differently."""
    if len(url) > URL_MAX_CHARACTERS:
        raise _build_malformed_fault(
            f"The URL has {len(url):,} characters; {URL_MAX_CHARACTERS:,} are allowed.",
            "Shorten it, for example by an id that stands for long filters.",
        )
    if _CONTROL.search(url):
        raise _build_malformed_fault(
            "The URL contains a control character, such as a line break.", "Remove it or percent-encode it."
        )
    parts = _URL.match(url)
    if not parts:
        raise _build_malformed_fault(
            "The URL does not begin with http:// or https://.", "Write it in full, with scheme and host."
        )
    # Full-width and circled characters mean plain ones in a host name, and could hide an @ or a slash.
    authority = unicodedata.normalize("NFKC", parts[2]).replace("。", ".").lower()
    if "@" in authority:
        raise _build_malformed_fault(
            "The URL carries a user name or password before its host.",
            "Remove it; credentials belong into a header or a query parameter.",
        )
    pieces = _AUTHORITY.fullmatch(authority)
    if not pieces:
        raise _build_malformed_host_fault(parts[2])
    bracketed, name, port = pieces.groups()
    scheme = parts[1].lower()
    try:
        host = parse_address(bracketed) if bracketed else _parse_host(name)
        return UrlParts(scheme, host, _parse_port(port) if port else _DEFAULT_PORTS[scheme], url[parts.end() :])
    except ValueError:
        raise _build_malformed_host_fault(parts[2]) from None


def _parse_host(name: str) -> str | Address:
    plain = (name if name.isascii() else idna.encode(name, uts46=True).decode("ascii")).rstrip(".")
    labels = plain.split(".")
    # A last label that is a number makes the whole an IPv4 address for the system's resolver, in whatever form
    # (2130706433, 0x7f.1, 0177.0.0.1); only four plain numbers with dots are read the same by everyone.
    if _NUMBER.fullmatch(labels[-1]):
        return parse_address(plain)
    if len(plain) > NAME_MAX_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(name)
    return plain


def _parse_port(text: str) -> int:
    if not 1 <= int(text) <= 65_535:
        raise ValueError(f"port {text} is not from 1 to 65535")
    return int(text)


def _build_malformed_fault(message: str, hint: str) -> Invalid:
    return Invalid("invalid_url", message, hint)


def _build_malformed_host_fault(authority: str) -> Invalid:
    return _build_malformed_fault(
        f"The URL's host, {authority[:NAME_MAX_CHARACTERS]!r}, is no plain host name or address.",
        "Write a host name, four numbers with dots or an IPv6 address in brackets; a port is from 1 to 65535.",
    )
