"""Encryption of payloads: what is hidden, which keys open it, and the sentence for a key that is gone."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from collections.abc import Sequence

import pytest
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from api import codec as api_codec
from domain.faults import Invalid
from infra import outages, payloads, temporal
from infra.component_settings import EngineClientSettings
from infra.payloads import EncryptingCodec, PayloadDamaged, PayloadKeyMissing
from infra.settings import SecretSettings, Settings

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"a secret"')


def make_key() -> str:
    """Another key."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


FIRST, SECOND = make_key(), make_key()


def make_codec(*keys: str, encrypts: bool = True) -> EncryptingCodec:
    """A codec with these keys, the newest first."""
    return EncryptingCodec(keys, encrypts=encrypts)


async def encrypt(codec: EncryptingCodec, *plain: Payload) -> Sequence[Payload]:
    """Encrypted payloads."""
    return await codec.encode(plain)


async def test_nothing_of_a_payload_is_seen() -> None:
    """Neither its data nor its encoding; a reader of the Web UI sees which key it needs."""
    codec = make_codec(FIRST)
    [hidden] = await encrypt(codec, PLAIN)
    assert b"secret" not in hidden.SerializeToString()
    assert b"json/plain" not in hidden.SerializeToString()
    assert hidden.metadata["encoding"] == b"binary/encrypted"
    assert hidden.metadata["encryption-key-id"].decode() == codec.key_ids[0]
    assert FIRST.encode() not in hidden.SerializeToString()
    assert await codec.decode([hidden]) == [PLAIN]


async def test_the_same_payload_is_never_the_same_twice() -> None:
    """Equal payloads cannot be recognised, and no nonce comes twice."""
    hidden = await encrypt(make_codec(FIRST), *[PLAIN] * 100)
    assert len({each.data for each in hidden}) == 100


async def test_plain_payloads_pass() -> None:
    """What was written before encryption was switched on is read as it is, between what is encrypted."""
    codec = make_codec(FIRST)
    [hidden] = await encrypt(codec, PLAIN)
    assert await codec.decode([PLAIN, hidden, PLAIN]) == [PLAIN] * 3


async def test_keys_rotate() -> None:
    """The first key encrypts, and every key decrypts."""
    [old] = await encrypt(make_codec(FIRST), PLAIN)
    codec = make_codec(SECOND, FIRST)
    [new] = await encrypt(codec, PLAIN)
    assert new.metadata["encryption-key-id"] != old.metadata["encryption-key-id"]
    assert await codec.decode([old, new]) == [PLAIN, PLAIN]


async def test_keys_alone_only_decrypt() -> None:
    """So that every process has the key before the first one encrypts, and after the last one has."""
    [hidden] = await encrypt(make_codec(FIRST), PLAIN)
    codec = make_codec(FIRST, encrypts=False)
    assert await codec.encode([PLAIN]) == [PLAIN]
    assert await codec.decode([hidden]) == [PLAIN]


async def test_a_lost_key_is_named() -> None:
    """The sentence has the id of the key and the setting, for callers as well; it is an outage of the engine."""
    [hidden] = await encrypt(make_codec(FIRST), PLAIN)
    with pytest.raises(PayloadKeyMissing, match=r"the key [0-9a-f]{16}, .* HAULAGE_SECRETS__PAYLOADS") as raised:
        await make_codec(SECOND).decode([hidden])
    assert raised.value.key_id == make_codec(FIRST).key_ids[0]
    assert outages.describe_outage(raised.value) == str(raised.value)
    assert outages.find_component_in_outage(raised.value) is outages.Component.ENGINE


async def test_a_lost_key_is_named_where_nothing_decrypts() -> None:
    """Also where encryption was never switched on, or its keys were taken away."""
    [hidden] = await encrypt(make_codec(FIRST), PLAIN)
    with pytest.raises(PayloadKeyMissing):
        await temporal.data_converter.decode([hidden], [str])


@pytest.mark.parametrize("place", [0, 20, -1])
async def test_a_changed_payload_is_noticed(place: int) -> None:
    """In its salt, its nonce or its text; and one that was cut off."""
    codec = make_codec(FIRST)
    [hidden] = await encrypt(codec, PLAIN)
    data = bytearray(hidden.data)
    data[place] ^= 1
    for changed in (bytes(data), hidden.data[:10], b""):
        with pytest.raises(PayloadDamaged):
            await codec.decode([Payload(metadata=hidden.metadata, data=changed)])


async def test_a_forked_process_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together with its parent it could otherwise encrypt more than one key allows."""
    codec = make_codec(FIRST)
    [parent] = await encrypt(codec, PLAIN)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    [child] = await encrypt(codec, PLAIN)
    assert parent.data[: payloads.SALT_BYTES] != child.data[: payloads.SALT_BYTES]
    assert await codec.decode([parent, child]) == [PLAIN, PLAIN]


async def test_a_derived_key_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before random nonces could meet."""
    monkeypatch.setattr(payloads, "MESSAGES_MAX", 3)
    codec = make_codec(FIRST)
    hidden = await encrypt(codec, *[PLAIN] * 7)
    assert [hidden[n].data[:16] == hidden[n + 1].data[:16] for n in range(6)] == [True, True, False, True, True, False]
    assert await codec.decode(hidden) == [PLAIN] * 7


async def test_messages_and_traces_of_failures_are_hidden() -> None:
    """They quote what activities worked on; without a codec they stay readable."""

    def fail() -> ApplicationError:
        try:
            raise ApplicationError("the text of a failure", "a detail")
        except ApplicationError as error:
            return error

    seen = {}
    for encrypts in (True, False):
        converter = payloads.add_codec(temporal.data_converter, make_codec(FIRST, encrypts=encrypts))
        failure = Failure()
        await converter.encode_failure(fail(), failure)
        seen[encrypts] = failure.SerializeToString()
        back = await converter.decode_failure(failure)
        assert isinstance(back, ApplicationError)
        assert (back.message, list(back.details)) == ("the text of a failure", ["a detail"])
    for text in (b"the text of a failure", b"a detail", b"test_payloads.py"):
        assert text not in seen[True]
        assert text in seen[False]


def make_settings(keys: Sequence[str], *, encrypts: bool) -> Settings:
    """Settings with these keys."""
    return Settings(
        _env_file=None,
        secrets=SecretSettings(payloads=[SecretStr(each) for each in keys]),
        engine=EngineClientSettings(encrypt_payloads=encrypts),
    )


def test_without_keys_nothing_is_done() -> None:
    """By default: the SDK then calls no codec at all."""
    assert payloads.build_codec(make_settings([], encrypts=False)) is None
    assert payloads.add_codec(temporal.data_converter, None) is temporal.data_converter


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [([], "HAULAGE_SECRETS__PAYLOADS holds no key"), (["short"], "not 32 bytes"), ([FIRST, "no base64!"], "not 32")],
)
def test_wrong_settings_are_refused(keys: Sequence[str], sentence: str) -> None:
    """Before anything is written; the key itself is not shown."""
    with pytest.raises(Invalid, match=sentence) as raised:
        payloads.build_codec(make_settings(keys, encrypts=True))
    assert all(key not in str(raised.value) for key in keys)


async def test_many_payloads_are_converted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests of the process have their turns meanwhile."""
    monkeypatch.setattr(api_codec, "PIECE_SECONDS", 0)
    turns = itertools.count()

    async def take_turns() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    body = api_codec.CodecRequest(payloads=[api_codec.CodecPayload(data="YQ==") for _ in range(100)])
    converted = await api_codec._convert_in_pieces(body, EncryptingCodec([], encrypts=False).decode)
    other.cancel()
    assert next(turns) >= 100
    assert [each.data for each in converted.payloads] == ["YQ=="] * 100
