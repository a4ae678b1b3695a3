"""The settings of the components: PostgreSQL, object store, engine, GSE and the collector of traces, and TLS."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

_SECONDS_OF_UNIT: Final = {"seconds": 1, "hours": 3_600, "days": 86_400}
_LONGEST_TIME_SECONDS: Final = 36_500 * 86_400


class SettingsGroup(BaseModel):
    """A group of settings. Numbers are finite, and times within what clocks, databases and the engine can count."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _require_time_within_a_century(cls, value: Any, info: ValidationInfo) -> Any:
        unit = _SECONDS_OF_UNIT.get((info.field_name or "").rpartition("_")[2], 0)
        times = (value if isinstance(value, list) else [value]) if unit else ()
        if any(each * unit > _LONGEST_TIME_SECONDS for each in times):
            raise ValueError("it is longer than 36,500 days. Set a shorter time.")
        return value


def _convert_to_usual_log_level(value: str) -> str:
    """Accept all names that Python has for levels, such as WARN, and write the usual one."""
    number = logging.getLevelNamesMapping().get(value.upper())
    if number is None:
        raise ValueError("it is no level of logs. Write one of DEBUG, INFO, WARNING, ERROR, CRITICAL.")
    return str(logging.getLevelName(number))


LogLevel = Annotated[str, AfterValidator(_convert_to_usual_log_level)]
Port = Annotated[int, Field(ge=0, le=65_535)]


def _require_only_scheme_and_host(value: str) -> str:
    """Refuse a path: links with one would be signed differently from how they arrive."""
    parts = urlsplit(value)
    is_base = parts.scheme in {"http", "https"} and parts.netloc and not parts.path.strip("/")
    if value and (not is_base or not {"?", "#", "@"}.isdisjoint(value)):
        raise ValueError("it is not scheme and host alone. Write it like https://files.example.com.")
    return value


PublicBase = Annotated[str, AfterValidator(_require_only_scheme_and_host)]


_DRIVER_PARAMETERS: Final = {"host", "port", "ssl", "passfile", "target_session_attrs", "prepared_statement_cache_size"}
"""What may follow the `?` of the database's address."""


def _convert_to_asyncpg_url(url: SecretStr) -> SecretStr:
    """Accept the usual schemes of PostgreSQL, and write that of the driver."""
    scheme, colon, rest = url.get_secret_value().partition("://")
    if scheme not in ("postgresql+asyncpg", "postgresql", "postgres") or not colon:
        raise ValueError("it is not an address of PostgreSQL; write postgresql://user:password@host:5432/database")
    query = rest.rpartition("@")[2].partition("?")[2]
    if {each.partition("=")[0] for each in query.split("&") if each} - _DRIVER_PARAMETERS:
        raise ValueError(
            "it has a parameter that only other drivers know, such as sslmode. Leave it out; for TLS set "
            "HAULAGE_DATABASE__SECURE to true"
        )
    return SecretStr(f"postgresql+asyncpg://{rest}")


class TlsSettings(SettingsGroup):
    """TLS to a component: whom we trust, and what we show. Every file is PEM, and read at the start of a process."""

    ca_file: Path | None = Field(
        default=None, description="certificates of the trusted authorities; by default SSL_CERT_FILE or Mozilla's list"
    )
    cert_file: Path | None = Field(default=None, description="our own certificate with its chain, for mutual TLS")
    key_file: Path | None = Field(default=None, description="the key of that certificate, without a password")
    server_name: str = Field(
        default="", description="the name in the server's certificate, if it is not the host that is connected to"
    )

    @model_validator(mode="after")
    def _require_cert_with_key(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("CERT_FILE and KEY_FILE belong together. Set both, or neither")
        return self


def _require_secure_for_tls_settings(secure: bool, tls: TlsSettings) -> None:
    """Refuse TLS settings that a plain connection would ignore."""
    if not secure and tls != TlsSettings():
        raise ValueError("the settings below TLS have no effect while SECURE is false. Set SECURE to true")


class DatabaseSettings(SettingsGroup):
    """PostgreSQL."""

    url: Annotated[SecretStr, AfterValidator(_convert_to_asyncpg_url)] = SecretStr(
        "postgresql+asyncpg://haulage:haulage@127.0.0.1:5432/haulage"
    )
    secure: bool = Field(default=False, description="whether connections use TLS and check the server's certificate")
    tls: TlsSettings = TlsSettings()
    pool_size: int = Field(default=8, ge=1)
    application_name: str = Field(default="haulage", description="the name in pg_stat_activity")
    # PostgreSQL counts milliseconds in 32 bits.
    statement_timeout_seconds: float = Field(default=60.0, ge=0, le=2_147_483, description="0 for no timeout")

    @model_validator(mode="after")
    def _require_secure_if_tls_is_set(self) -> Self:
        _require_secure_for_tls_settings(self.secure, self.tls)
        return self


class ObjectSettings(SettingsGroup):
    """The S3 object store."""

    endpoint: str = "127.0.0.1:8333"
    secure: bool = Field(default=False, description="whether connections use TLS and check the server's certificate")
    tls: TlsSettings = TlsSettings()
    region: str = "us-east-1"
    bucket: str = "haulage"
    prefix: str = Field(default="", description="prefix of every key, so that installations can share a bucket")
    access_key: str = "haulage"
    secret_key: SecretStr = SecretStr("")
    public_base: PublicBase = Field(default="", description="scheme and host of the store for browsers, e.g. a CDN")
    threads: int = Field(default=8, ge=1, description="concurrent requests to the store")

    @model_validator(mode="after")
    def _require_secure_if_tls_is_set(self) -> Self:
        _require_secure_for_tls_settings(self.secure, self.tls)
        return self


class EngineClientSettings(SettingsGroup):
    """The use of Temporal. Its address, namespace, keys and TLS come from `TEMPORAL_…` (temporalio.envconfig)."""

    encrypt_payloads: bool = Field(
        default=False,
        description="whether what goes through Temporal is encrypted, by the first key of HAULAGE_SECRETS__PAYLOADS",
    )
    sticky_timeout_seconds: float = Field(default=1.0, gt=0)
    task_timeout_seconds: float = Field(
        default=5.0,
        gt=0,
        description="how long a worker may take over one step of a download or webhook, replaying its history included",
    )
    graceful_shutdown_seconds: float = Field(default=10.0, ge=0)
    compatible_with: str = Field(
        default="",
        pattern=r"^(\d+\.\d+\.\d+)?$",
        description="oldest version whose workers still run, while versions are replaced: workflows do not take the "
        "steps that later ones brought yet; empty otherwise",
    )
    ui_url: str = Field(default="", description="address of the Temporal Web UI, for links")


class TraceSettings(SettingsGroup):
    """Traces in OpenTelemetry's form."""

    endpoint: str = Field(
        default="", description="a collector that takes OTLP over HTTP, like http://127.0.0.1:4318; empty for no traces"
    )
    sampled_share: float = Field(default=1.0, ge=0, le=1, description="share of new traces that are recorded")


class EmbeddedPortSettings(SettingsGroup):
    """The ports of the embedded components on 127.0.0.1. If one is in use, the next free one is taken; 0 for any."""

    engine_port: Port = 7233
    ui_port: Port = 8233
    database_port: Port = 5432
    store_port: Port = 8333


class GseSettings(SettingsGroup):
    """GSE behind its API gateway, and this worker's host as the source of files."""

    base_url: str = Field(
        "", pattern=r"^(https?://[^\s/?#][^\s?#]*)?$", description="gateway's stage, like https://gse.example.com/prod"
    )
    app_code: str = ""
    app_secret: SecretStr = SecretStr("")
    username: str = Field(default="admin", description="the user that GSE is called as; may be empty")
    tenant_id: str = ""
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    answer_timeout_seconds: float = Field(default=30.0, gt=0)
    concurrency: int = Field(default=50, ge=1, description="concurrent calls, per worker")
    calls_per_second: float = Field(default=0.0, ge=0, description="calls per second, per worker; 0 for no limit")
    retries: int = Field(
        default=4, ge=0, description="retries of a call; the call that begins a transfer is never repeated"
    )
    retry_pause_seconds: float = Field(default=0.5, ge=0, description="pause before a call is repeated; doubles")
    breaker_failures: int = Field(
        default=20, ge=1, description="consecutive failures after which GSE is not called for a while"
    )
    breaker_seconds: float = Field(default=5.0, ge=0, description="how long; then one call is made as a trial")
    source_agent_id: str = Field(default="", description="this worker's host in GSE")
    source_container_id: str = Field(default="", description="empty if files are read on the host itself")
    source_user: str = Field(default="root", description="the user that reads files there")
    source_folder: str = Field(default="", description="the path of cache_folder for GSE; by default the same")
    cache_folder: Path = Path(".haulage/transfers")
    cache_max_bytes: int = Field(
        default=10 * 1024**3, ge=1, description="size of the cache; files in use may exceed it"
    )
