"""Settings that operators write: each mistake is explained in a sentence, and secrets stay out of it."""

from __future__ import annotations

import re

import pytest
from pydantic import SecretStr, ValidationError

from domain.faults import Invalid
from infra.address_settings import ModuleSettings
from infra.component_settings import DatabaseSettings, GseSettings
from infra.settings import Settings, list_variables_with_unused_values, load_settings_from_environment


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_every_spelling_of_the_scheme_will_do(scheme: str) -> None:
    """Operators copy addresses from elsewhere."""
    settings = DatabaseSettings(url=SecretStr(f"{scheme}://user:pa://ss@host/db"))

    assert settings.url.get_secret_value() == "postgresql+asyncpg://user:pa://ss@host/db"


@pytest.mark.parametrize("url", ["mysql://host/db", "host/db", "", "postgresql+psycopg2://host/db"])
def test_anything_else_is_refused_by_a_sentence(url: str) -> None:
    """It says how an address is written."""
    with pytest.raises(ValidationError, match=r"write postgresql://user:password@host:5432/database"):
        DatabaseSettings(url=SecretStr(url))


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1", "https://gse.example.com/prod", "https://[::1]:8080/prod/"])
def test_the_root_of_a_stage_is_where_gse_is(url: str) -> None:
    """Nothing at all is an installation without transfers."""
    assert GseSettings(base_url=url).base_url == url


@pytest.mark.parametrize("url", ["gse.example.com/prod", "ftp://gse", "https://", "https:///prod", "https://gse/p?x=1"])
def test_an_address_that_no_call_could_reach_is_refused(url: str) -> None:
    """At the start, not as an outage in the middle of a transfer."""
    with pytest.raises(ValidationError, match="should match pattern"):
        GseSettings(base_url=url)


def test_what_is_wrong_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable has its sentence; a password in one does not get into logs."""
    monkeypatch.setenv("HAULAGE_DATABASE__URL", "mysql://user:hush@host/db")
    monkeypatch.setenv("HAULAGE_DOWNLOADS__PAGE_RETRIES", "many")

    with pytest.raises(Invalid) as caught:
        load_settings_from_environment.__wrapped__()

    sentence = caught.value.record.sentence
    assert sentence.startswith("HAULAGE_DATABASE__URL: it is not an address of PostgreSQL; write postgresql://")
    assert "HAULAGE_DOWNLOADS__PAGE_RETRIES: Input should be a valid integer" in sentence
    assert "hush" not in sentence


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("TRANSFERS__REPOSITORY", "https://me:hush@files/{biz}", "unknown name in braces. Use {biz_id}, "),
        ("TRANSFERS__REPOSITORY", "https://me:hush@files/{path.x}", "unknown name in braces"),
        ("TRANSFERS__REPOSITORY", "ftp://me:hush@files/{path}", "does not begin with http://"),
        ("ADDRESSES__PUSH__KEYS_URL", "ftp://me:hush@host", "not an address of a web service"),
        ("API__PUBLIC_BASE", "https://me:hush@host", "not scheme and host alone"),
        ("API__PUBLIC_BASE", "https://host?hush", "not scheme and host alone"),
        ("OBJECTS__PUBLIC_BASE", "https://host/#hush", "not scheme and host alone"),
        ("DATABASE__URL", "postgresql://me:hush@host/db?sslmode=require", "set HAULAGE_DATABASE__SECURE to true"),
        ("DOWNLOADS__PAGE_RETRIES", "-1", "greater than or equal to 0"),
        ("DOWNLOADS__PAGE_TIMEOUT_SECONDS", "0", "greater than 0"),
        ("DOWNLOADS__RETRY_PAUSE_SECONDS", "-0.5", "greater than or equal to 0"),
        ("WEBHOOKS__RETRY_PAUSES_SECONDS", "[5, -1]", "greater than or equal to 0"),
        ("API__BODY_MAX_BYTES", "0", "greater than or equal to 1"),
        ("TRANSFERS__TIMEOUT_SECONDS", "86401", "less than or equal to 86400"),
        ("API__PORT", "65536", "less than or equal to 65535"),
        ("WEBHOOKS__RETRY_PAUSES_SECONDS", "[5, Infinity]", "finite number"),
        ("WEBHOOKS__RETRY_PAUSES_SECONDS", "[5, NaN]", "finite number"),
        ("WEBHOOKS__RETRY_PAUSES_SECONDS", "[5, 1e300]", "longer than 36,500 days"),
        ("GSE__CALLS_PER_SECOND", "inf", "finite number"),
        ("ADDRESSES__MODULES__IM__TIMEOUT_SECONDS", "nan", "finite number"),
        ("ORDERS__STALE_HOURS", "1e12", "longer than 36,500 days"),
        ("API__AUDIT_KEPT_DAYS", "1000000000", "longer than 36,500 days"),
        ("DATABASE__STATEMENT_TIMEOUT_SECONDS", "2147484", "less than or equal to 2147483"),
        ("LOG_LEVEL", "INOF", "it is no level of logs. Write one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    """By a sentence that names its variable, and never shows it."""
    monkeypatch.setenv(f"HAULAGE_{variable}", value)
    with pytest.raises(Invalid, match=f"HAULAGE_{variable}.*{re.escape(sentence)}") as caught:
        load_settings_from_environment.__wrapped__()
    assert "hush" not in caught.value.record.sentence


def test_a_level_of_logs_may_be_in_small_letters() -> None:
    """As structlog has it, while the standard library knows capitals only."""
    for given, level in {"warning": "WARNING", "WARN": "WARNING", "NOTSET": "NOTSET"}.items():
        assert Settings.model_validate({"log_level": given}).log_level == level


@pytest.mark.parametrize("query", ["ssl=require", "host=a:5432&host=b:5432", ""])
def test_what_the_driver_knows_may_follow_the_address_of_the_database(query: str) -> None:
    """A question mark in a password begins no parameters."""
    settings = DatabaseSettings(url=SecretStr(f"postgresql://user:pa?ss@host/db?{query}"))
    assert settings.url.get_secret_value().endswith(query)


def test_a_list_that_is_no_json_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell leaves it that read a file of variables without quotes around the quotes."""
    monkeypatch.setenv("HAULAGE_SECRETS__SEAL", "[hush]")

    with pytest.raises(Invalid) as caught:
        load_settings_from_environment.__wrapped__()

    sentence = caught.value.record.sentence
    assert sentence.startswith("HAULAGE_SECRETS__SEAL ")
    assert "HAULAGE_GUARD__ALLOW='[\"127.0.0.1:9000\"]'" in sentence
    assert "no JSON" in sentence
    assert "hush" not in sentence


def test_variables_that_a_local_installation_replaces_are_listed() -> None:
    """Those that were given and are not used, with the names to set them by; what was only added to is used."""
    given = Settings.model_validate(
        {"secrets": {"seal": ["a"], "other_peppers": ["b"]}, "gse": {"base_url": "http://g"}}
    )
    used = given.model_copy(
        update={
            "secrets": given.secrets.model_copy(
                update={"seal": [], "other_peppers": [*given.secrets.other_peppers] * 2}
            ),
            "log_level": "DEBUG",
        }
    )
    assert list_variables_with_unused_values(given, used) == ["HAULAGE_SECRETS__SEAL"]


@pytest.mark.parametrize(
    "base_url", ["im.example.com:8090", "ftp://im", "http://", "http://im:99999", "http://[::1", "http://:80/x"]
)
def test_where_a_module_is_must_be_an_address(base_url: str) -> None:
    """Each call to it would fail otherwise, without end."""
    with pytest.raises(ValidationError, match="not an address of a web service"):
        ModuleSettings(base_url=base_url)
    assert (
        ModuleSettings(base_url="http://im.example.com:8090/haulage/").base_url == "http://im.example.com:8090/haulage"
    )
