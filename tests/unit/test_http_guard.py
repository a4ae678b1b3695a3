"""The guard where it counts, at the socket: whatever names, redirects and environment say, the canary stays silent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from clients.http import GuardedClient, HttpResponse
from domain.faults import Invalid, SourceFault
from infra.settings import EgressGuardSettings
from tests.support.http_peer import Answers, Peer, answer, running_peer, running_reachable_peer, says


@pytest.fixture
async def canary() -> AsyncIterator[Peer]:
    """A server of our own machine that no user may ever reach."""
    async with running_peer(says(answer(b"secret"))) as silent:
        yield silent
        assert silent.connections == 0


async def read(client: GuardedClient, url: str) -> HttpResponse:
    """Read a small answer soon."""
    return await client.get(url, max_bytes=1_000, timeout_seconds=5)


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["127.0.0.2"],
        ["0.0.0.0"],  # noqa: S104 - an address to connect to
        ["::1"],
        ["::"],
        ["::ffff:127.0.0.1"],
        ["::ffff:0:127.0.0.1"],
        ["::127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["169.254.169.254"],
        ["fe80::1%lo"],
        ["127.0.0.1", "::1"],
        ["127.0.0.1", "127.0.0.2", "10.0.0.1"],
    ],
)
async def test_names_that_lead_inside(canary: Peer, addresses: list[str]) -> None:
    """A public name that resolves to closed addresses is refused, and the addresses are not shown."""
    settings = EgressGuardSettings(ports=[canary.port])
    async with GuardedClient(settings, resolver=Answers(addresses)) as client:
        url = f"http://rebound.example.com:{canary.port}/"
        client.require_url_allowed_before_lookup(url)
        with pytest.raises(SourceFault) as refused:
            await read(client, url)
    assert refused.value.record.code == "address_denied"
    assert not refused.value.transient
    assert not any(address in refused.value.record.sentence for address in addresses)
    assert refused.value.__cause__ is None


async def test_canary_sings_when_it_is_reached() -> None:
    """The same way to the same kind of server works once it is opened: the other tests could fail."""
    async with running_peer(says(answer(b"secret"))) as opened:
        settings = EgressGuardSettings(ports=[opened.port], allow=[opened.where])
        async with GuardedClient(settings, resolver=Answers(["127.0.0.1"])) as client:
            got = await read(client, f"http://rebound.example.com:{opened.port}/")
        assert (got.body, opened.connections) == (b"secret", 1)


@pytest.mark.parametrize("host", ["api", "127.0.0.1", "haulage.example.com"])
async def test_one_route_of_our_own_api_is_open(host: str) -> None:
    """It leads wherever our resolver says, on its port alone; another name to the same place stays closed."""
    async with running_peer(says(answer(b"own"))) as own:
        settings = EgressGuardSettings(ports=[])
        route = f"http://{host}:{own.port}/v1/orders/source"
        async with GuardedClient(settings, own=route, resolver=Answers(["127.0.0.1"])) as client:
            got = await read(client, f"{route}?platform=shop&page=1")
            with pytest.raises(Invalid):
                client.require_url_allowed_before_lookup(f"http://{host}:{own.port + 1}/v1/orders/source")
            with pytest.raises(SourceFault, match="not open"):
                await read(client, f"http://elsewhere.example.com:{own.port}/v1/orders/source")
            client.require_url_allowed_before_lookup(route, is_source=True)
            with pytest.raises(Invalid, match="as a source of downloads"):
                client.require_url_allowed_before_lookup(route)
            with pytest.raises(SourceFault, match="as a source of downloads"):
                await client.post(route, body=b"{}", max_bytes=1_000, timeout_seconds=5)
        assert (got.body, own.connections) == (b"own", 1)


@pytest.mark.parametrize("host", ["api", "127.0.0.1", "haulage.example.com"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/v1/projects",
        "/v1/orders/source/",
        "/v1/orders/source/../../projects",
        "/v1/orders/sourc%65",
        "",
    ],
)
async def test_no_other_route_of_our_own_api_is_open(host: str, path: str) -> None:
    """Whatever the operator opened beside it, and also where a connection to the same host and port is kept."""
    async with running_peer(says(answer(b"own"))) as own:
        settings = EgressGuardSettings(ports=[own.port], allow=[own.where])
        route = f"http://{host}:{own.port}/v1/orders/source"
        async with GuardedClient(settings, own=route, resolver=Answers(["127.0.0.1"])) as client:
            await read(client, route)
            with pytest.raises(SourceFault, match="opens one route of its own only"):
                await read(client, f"http://{host}:{own.port}{path}")
            with pytest.raises(Invalid, match="opens one route of its own only"):
                client.require_url_allowed_before_lookup(f"http://{host.upper()}:{own.port}{path}?/v1/orders/source")


async def test_rebinding(canary: Peer) -> None:
    """A name that first leads to an admitted server and then to our machine is refused the second time."""
    resolver = Answers(["127.0.0.2"], ["127.0.0.1"])
    async with running_peer(says(answer(b"rows")), host="127.0.0.2", port=canary.port) as lure:
        settings = EgressGuardSettings(ports=[canary.port], allow=[lure.where])
        url = f"http://rebound.example.com:{canary.port}/"
        # Two clients, because one keeps a name's answer for some seconds: an API process checks, a worker connects.
        async with GuardedClient(settings, resolver=resolver) as first:
            assert (await read(first, url)).body == b"rows"
        async with GuardedClient(settings, resolver=resolver) as second:
            with pytest.raises(SourceFault, match="private") as refused:
                await read(second, url)
    assert refused.value.record.code == "address_denied"


async def test_closed_addresses_are_passed_over(canary: Peer) -> None:
    """Of several addresses only the admitted one is connected to."""
    async with running_peer(says(answer(b"rows")), host="127.0.0.2", port=canary.port) as opened:
        settings = EgressGuardSettings(ports=[canary.port], allow=[opened.where])
        async with GuardedClient(settings, resolver=Answers(["127.0.0.1", "127.0.0.2", "::1"])) as client:
            assert (await read(client, f"http://mixed.example.com:{canary.port}/")).body == b"rows"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_redirects_are_answers(canary: Peer, status: str) -> None:
    """A redirect to the canary comes back as it is, for the caller to judge."""
    async with running_reachable_peer(says(answer(b"", f"Location: {canary.url}", status=status))) as (lure, client):
        got = await read(client, lure.url)
    assert (got.status, got.headers["Location"]) == (int(status[:3]), canary.url)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_environment_proxies(canary: Peer, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment would hide the address from the guard: it is ignored."""
    monkeypatch.setenv(variable, canary.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with running_reachable_peer(says(answer(b"rows"))) as (opened, client):
        assert (await read(client, opened.url)).body == b"rows"


async def test_neighbouring_port(canary: Peer) -> None:
    """Opening one port of an address opens no other, neither before the request nor at the socket."""
    async with running_peer(says(answer(b"rows"))) as opened:
        settings = EgressGuardSettings(allow=[opened.where], ports=[canary.port])
        async with GuardedClient(settings, resolver=Answers(["127.0.0.1"])) as client:
            assert (await read(client, opened.url)).body == b"rows"
            with pytest.raises(Invalid):
                client.require_url_allowed_before_lookup(canary.url)
            for url in (canary.url, f"http://neighbour.example.com:{canary.port}/"):
                with pytest.raises(SourceFault) as refused:
                    await read(client, url)
                assert refused.value.record.code == "address_denied"


async def test_the_check_before_the_request_is_not_skipped() -> None:
    """A URL that was never checked is checked when it is used."""
    async with GuardedClient(EgressGuardSettings()) as client:
        with pytest.raises(SourceFault) as refused:
            await read(client, "http://me:word@example.com/")
    assert refused.value.record.code == "invalid_url"


def test_wrong_allow_list() -> None:
    """A wrong entry of the allow list is an error when the settings are read."""
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1/8'.*Write an address"):
        EgressGuardSettings(allow=["10.0.0.1/8"])
