"""Who pushes: only what Google signed for our audience and our account, or our own secret."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from pydantic import SecretStr, ValidationError

from clients import push_tokens
from clients.http import GuardedClient
from clients.push_tokens import InvalidPushToken, PushTokenVerifier
from infra.address_settings import PubSubPushSettings
from infra.settings import EgressGuardSettings
from sims.pubsub.server import PubSubSim, running_pubsub
from sims.pubsub.signing import KEY_ID, Signer

AUDIENCE = "https://haulage.example.com"
EMAIL = "pusher@project.iam.gserviceaccount.com"
SECRET = "a-secret-of-ours-1"


@pytest.fixture
async def sim() -> AsyncIterator[PubSubSim]:
    """A stand-in that publishes its keys."""
    async with running_pubsub() as running:
        yield running


@pytest.fixture
async def http(sim: PubSubSim) -> AsyncIterator[GuardedClient]:
    """A client that may reach it."""
    async with GuardedClient(EgressGuardSettings(allow=[sim.base.removeprefix("http://")])) as client:
        yield client


def guards(http: GuardedClient, sim: PubSubSim, **changes: Any) -> PushTokenVerifier:
    """What lets pushes in."""
    given = {"audience": AUDIENCE, "email": EMAIL, "keys_url": sim.keys_url, **changes}
    return PushTokenVerifier(http, PubSubPushSettings(**given))


async def test_what_google_signed_for_us_is_let_in(sim: PubSubSim, http: GuardedClient) -> None:
    """The keys are fetched once for many pushes."""
    verifier = guards(http, sim)
    for _ in range(3):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE))


async def test_a_token_is_known_until_it_ends(
    sim: PubSubSim, http: GuardedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signature is checked once while it, and the key that signed it, hold; the cache is bounded."""
    monkeypatch.setattr(push_tokens, "CACHED_TOKENS_MAX", 2)
    verifier = guards(http, sim)
    checked = _count_checks(verifier, monkeypatch)
    token = sim.signer.token(email=EMAIL, audience=AUDIENCE)
    for _ in range(3):
        await verifier.require_valid_token(token)
    assert len(checked) == 1

    for number in range(3):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE, number=number))
    await verifier.require_valid_token(token)
    assert len(checked) == 5

    ending = sim.signer.token(email=EMAIL, audience=AUDIENCE, exp=int(time.time()) - 30)
    for _ in range(2):
        await verifier.require_valid_token(ending)
    assert len(checked) == 7

    monkeypatch.setattr(push_tokens, "KEYS_CACHE_SECONDS", 0.0)
    for _ in range(2):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE, number=9))
    assert len(checked) == 9


def _count_checks(verifier: PushTokenVerifier, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    checked: list[str] = []
    look = verifier._decode_claims

    async def counted(token: str, key_id: str) -> dict[str, Any]:
        checked.append(token)
        return await look(token, key_id)

    monkeypatch.setattr(verifier, "_decode_claims", counted)
    return checked


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"email": "stranger@x"}, "another account"),
        ({"email": None}, "another account"),
        ({"email_verified": False}, "another account"),
        ({"email_verified": None}, "another account"),
        ({"aud": "https://elsewhere.example.com"}, "Audience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example.com"}, "issuer"),
        ({"exp": int(time.time()) - 3_600}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": int(time.time()) + 3_600}, "iat"),
    ],
)
async def test_any_other_claim_is_refused(
    sim: PubSubSim, http: GuardedClient, changes: dict[str, Any], reason: str
) -> None:
    """Any account may have a token issued for our audience, or for another in our account's name."""
    token = sim.signer.token(**{"email": EMAIL, "audience": AUDIENCE, **changes})

    with pytest.raises(InvalidPushToken, match=reason):
        await guards(http, sim).require_valid_token(token)


async def test_another_s_key_and_other_algorithms_are_refused(sim: PubSubSim, http: GuardedClient) -> None:
    """Nor does a public key pass for a shared secret, or no signature at all for one."""
    claims = jwt.decode(sim.signer.token(email=EMAIL, audience=AUDIENCE), options={"verify_signature": False})
    forged = [
        Signer().token(email=EMAIL, audience=AUDIENCE),
        jwt.encode(claims, "x" * 64, algorithm="HS256", headers={"kid": KEY_ID}),
        jwt.encode(claims, "", algorithm="none", headers={"kid": KEY_ID}),
        "not.a.token",
        "",
        "é",
    ]
    for token in forged:
        with pytest.raises(InvalidPushToken):
            await guards(http, sim).require_valid_token(token)


async def test_strangers_cannot_make_us_ask_for_keys_again_and_again(
    sim: PubSubSim, http: GuardedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown key is looked for once in a while; so a new one of Google's is soon known."""
    verifier = guards(http, sim)
    old = sim.signer.token(email=EMAIL, audience=AUDIENCE)
    await verifier.require_valid_token(old)
    asked = await _count_fetches(verifier, monkeypatch)
    unknown = jwt.encode({}, "x" * 64, algorithm="HS256", headers={"kid": "new"})
    for _ in range(5):
        with pytest.raises(InvalidPushToken, match="not among Google"):
            await verifier.require_valid_token(unknown)
    assert asked == []

    monkeypatch.setattr(push_tokens, "KEYS_RELOAD_SECONDS", -1.0)
    with pytest.raises(InvalidPushToken, match="not among Google"):
        await verifier.require_valid_token(unknown)
    assert len(asked) == 1


async def _count_fetches(verifier: PushTokenVerifier, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    fetch = verifier._load_keys

    async def counted() -> dict[str, jwt.PyJWK]:
        asked.append(1)
        return await fetch()

    monkeypatch.setattr(verifier, "_load_keys", counted)
    return asked


async def test_without_keys_nobody_is_refused_for_good(http: GuardedClient, sim: PubSubSim) -> None:
    """Pub/Sub is to push again: the token is not refused."""
    verifier = guards(http, sim, keys_url=f"{sim.base}/nothing-here")

    with pytest.raises(ConnectionError, match=r"The keys at .* cannot be read"):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE))


async def test_the_secret_opens_and_nothing_near_it_does(sim: PubSubSim, http: GuardedClient) -> None:
    """Also where no account was agreed on."""
    verifier = guards(http, sim, audience="", secret=SecretStr(SECRET))
    await verifier.require_valid_token(SECRET)
    signed = sim.signer.token(email=EMAIL, audience="")
    for token in ("", SECRET[:-1], f"{SECRET}x", SECRET.upper(), signed):
        with pytest.raises(InvalidPushToken, match="not the secret"):
            await verifier.require_valid_token(token)


@pytest.mark.parametrize("changes", [{}, {"audience": AUDIENCE}, {"email": EMAIL}])
async def test_where_nothing_was_agreed_on_nobody_is_let_in(http: GuardedClient, changes: dict[str, str]) -> None:
    """An empty secret opens nothing, and an audience without an account is not enough."""
    closed = PushTokenVerifier(http, PubSubPushSettings(**changes))
    tokens = ["", Signer().token(email=EMAIL, audience=AUDIENCE), Signer().token(email="", audience="")]

    refused = await asyncio.gather(*map(closed.require_valid_token, tokens), return_exceptions=True)

    assert [type(each) for each in refused] == [InvalidPushToken] * 3


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    """At the start, not by guessing it."""
    with pytest.raises(ValidationError, match="fewer than 16 characters"):
        PubSubPushSettings(secret=SecretStr("short"))


async def test_known_keys_stay_good_while_google_s_cannot_be_loaded(
    sim: PubSubSim, http: GuardedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a day; and the attempts to load them hold up no push after the first."""
    verifier = guards(http, sim)
    await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE))
    asked: list[int] = []

    async def fail() -> dict[str, jwt.PyJWK]:
        asked.append(1)
        raise ConnectionError("The keys cannot be read.")

    monkeypatch.setattr(verifier, "_load_keys", fail)
    clock, real = [push_tokens.KEYS_CACHE_SECONDS + 1], time.monotonic
    monkeypatch.setattr(push_tokens, "time", SimpleNamespace(monotonic=lambda: real() + clock[0], time=time.time))
    for number in range(5):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE, jti=str(number)))
    unknown = jwt.encode({}, "x" * 64, algorithm="HS256", headers={"kid": "new"})
    failures = []
    for _ in range(5):
        with pytest.raises(ConnectionError) as raised:
            await verifier.require_valid_token(unknown)
        failures.append(raised.value)
    assert len(asked) == 1
    # Raised again, an exception keeps the frames of each push.
    assert len(set(map(id, failures))) == 5

    clock[0] += 86_400
    with pytest.raises(ConnectionError):
        await verifier.require_valid_token(sim.signer.token(email=EMAIL, audience=AUDIENCE, jti="late"))
