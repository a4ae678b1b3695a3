"""Settings: one tree for every process, from `HAULAGE_…` variables and `.env`. Names end in their units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from domain import egress
from domain.faults import Invalid
from domain.quotas import DownloadQuotaLimits, QuotaLimits
from infra.address_settings import AddressSettings
from infra.component_settings import (
    DatabaseSettings,
    EmbeddedPortSettings,
    EngineClientSettings,
    GseSettings,
    LogLevel,
    ObjectSettings,
    Port,
    PublicBase,
    SettingsGroup,
    TraceSettings,
)

_VARIABLES_OF_COMMANDS: Final = {"HAULAGE_API": "HAULAGE_API_URL"}
"""What commands read beside the settings, by the group whose name is taken for it."""


class EgressGuardSettings(SettingsGroup):
    """The addresses that the guarded HTTP client may connect to."""

    allow: list[str] = Field(default=[], description="addresses, address:port pairs and networks that are allowed")
    ports: list[int] = Field(default=[80, 443, 8080, 8443], description="ports that are allowed on public addresses")
    connect_timeout_seconds: float = Field(default=10.0, gt=0)
    pool_connections: int = Field(default=64, ge=1)

    @field_validator("allow")
    @classmethod
    def _require_valid_allow_list(cls, allow: list[str]) -> list[str]:
        egress.EgressRules.parse(allow, ())
        return allow


class ApiSettings(SettingsGroup):
    """The HTTP server of the API."""

    host: str = "127.0.0.1"
    port: Port = 8080
    own_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="a port of this process alone; others on this machine may then share `port`",
    )
    admin_key: SecretStr = Field(default=SecretStr(""), description="at least 24 characters; empty for none")
    admin_keys: dict[str, SecretStr] = Field(
        default={}, description="further admin keys, by the names that the audit log has of them"
    )
    wrong_keys_per_minute: int = Field(
        default=60, ge=1, description="wrong keys from one address whose refusal is not delayed"
    )
    idempotency_kept_days: int = Field(
        default=30, ge=1, description="how long an Idempotency-Key finds the download that it started"
    )
    audit_kept_days: int = Field(default=400, ge=1, description="how long the audit log keeps an action")
    body_max_bytes: int = Field(default=1024 * 1024, ge=1)
    body_timeout_seconds: float = Field(default=20.0, gt=0)
    request_timeout_seconds: float = Field(default=60.0, gt=0)
    keepalive_seconds: float = Field(default=30.0, ge=0)
    ping_seconds: float = Field(default=15.0, gt=0, description="pause between pings on open streams")
    streams_per_project: int = Field(default=100, ge=1, description="open streams of a project, per process")
    public_base: PublicBase = Field(
        default="", description="scheme and host of links to this API; by default those of the request"
    )
    session_hours: float = Field(default=12.0, gt=0, le=24 * 31, description="how long a sign-in to the console lasts")

    @field_validator("admin_keys", mode="before")
    @classmethod
    def _read_empty_as_no_keys(cls, value: object) -> object:
        """Accept an empty variable, as a compose file passes one that is not set."""
        return {} if value == "" else value

    def list_admin_keys(self) -> dict[str, SecretStr]:
        """Return the admin keys by their names; the name of the first one is empty."""
        first = {"": self.admin_key} if self.admin_key.get_secret_value() else {}
        return {**first, **self.admin_keys}

    @property
    def console_base(self) -> str:
        """Scheme and host of the console: `public_base`, or else the address of an API on this machine."""
        # A worker elsewhere has no host set, and the default host is not that of any console.
        is_here = "host" in self.model_fields_set and self.host in {"127.0.0.1", "localhost"} and self.port
        return self.public_base or (f"http://{self.host}:{self.port}" if is_here else "")


class SecretSettings(SettingsGroup):
    """The installation's own keys.

    `seal` lists keys of sealed values, and `payloads` those of what goes through Temporal: 32 random bytes in URL-safe
    base64, newest first. `pepper` hashes API keys, and signs links to files and ids of transfers.
    """

    seal: list[SecretStr] = Field(default=[])
    payloads: list[SecretStr] = Field(
        default=[], description="the first encrypts where HAULAGE_ENGINE__ENCRYPT_PAYLOADS is true; each decrypts"
    )
    payloads_given_up: list[str] = Field(
        default=[], description="ids of keys that are gone for good, with all that only they decrypt"
    )
    pepper: SecretStr = SecretStr("")
    other_peppers: list[SecretStr] = Field(
        default=[],
        description="peppers from before a rotation, or of the next one: what was made with them is accepted",
    )

    def list_peppers(self) -> list[str]:
        """Return the peppers in plain text, first the one that new hashes and signatures are made with."""
        return [pepper.get_secret_value() for pepper in (self.pepper, *self.other_peppers)]


class WorkerSlotsAndMetricsSettings(SettingsGroup):
    """The capacity of a worker process."""

    metrics_host: str = "127.0.0.1"
    metrics_port: Port = Field(default=0, description="0 picks a free port")
    fetch_slots: int = Field(default=6, ge=1)
    render_slots: int = Field(default=1, ge=1, description="workbooks rendered at a time; each uses a core")


class DownloadSettings(SettingsGroup):
    """Downloads."""

    page_timeout_seconds: float = Field(default=30.0, gt=0)
    page_max_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    page_retries: int = Field(default=5, ge=0)
    retry_pause_seconds: float = Field(default=0.5, ge=0, description="pause before a page is requested again; doubles")
    retry_after_max_seconds: float = Field(
        default=300.0, ge=0, description="the longest wait that a source may ask for"
    )
    max_task_retries: int = Field(
        default=3, ge=0, description="how often a download is repeated after a transient failure"
    )
    rerun_pause_seconds: float = Field(default=5.0, ge=0, description="pause before that; doubles")
    slice_seconds: float = Field(
        default=10.0, ge=0, description="how long a fetcher keeps its slot before it queues again"
    )
    small_file_max_bytes: int = Field(
        default=4 * 1024 * 1024, ge=0, description="a CSV file up to this size is made while its source is probed"
    )
    resume_window_seconds: int = Field(default=300, ge=0, description="how long staged rows can be resumed from")
    requests_per_host: int = Field(default=10, ge=1, description="requests at a time, over all workers")
    excel_file_max_bytes: int = Field(default=10_000_000, ge=100_000, description="a larger Excel file is split")
    excel_file_max_rows: int = Field(
        default=800_000, ge=1, le=1_000_000, description="an Excel file with more rows is split"
    )
    rows_kept_days: int = Field(
        default=400,
        ge=1,
        description="how long an ended download without a file is listed, at least as long as its Idempotency-Key",
    )
    operator_quotas: DownloadQuotaLimits = DownloadQuotaLimits()


class WebhookSettings(SettingsGroup):
    """Deliveries to callback addresses, by Standard Webhooks."""

    timeout_seconds: float = Field(default=20.0, gt=0, le=30, description="timeout of an attempt")
    retry_pauses_seconds: list[Annotated[float, Field(ge=0)]] = Field(
        default=[5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400],
        description="pauses between attempts; after the last one the delivery has failed",
    )
    kept_days: int = Field(default=30, ge=1, description="how long finished deliveries are kept")


def _require_valid_repository_template(value: str) -> str:
    """Refuse a template that cannot be filled in, at the start rather than in the middle of a job."""
    names = "{biz_id}, {app_id}, {path} and {signature}"
    try:
        value.format(biz_id=1, app_id=1, path="p", signature="s")
    except (LookupError, AttributeError, TypeError, ValueError):
        raise ValueError(f"it holds an unknown name in braces. Use {names}.") from None
    if not value.startswith(("http://", "https://", "store:")):
        raise ValueError("it does not begin with http://, https:// or store: (the object store). Add one.")
    return value


class TransferSettings(SettingsGroup):
    """Transfers of one file to many hosts. The first five settings must be the same for every API process."""

    window_seconds: int = Field(
        default=15, ge=1, le=3600, description="requests for a file within a window share a job"
    )
    timeout_seconds: float = Field(
        default=600.0, gt=0, le=86_400, description="time from the window to the deadline of its targets"
    )
    kept_seconds: float = Field(default=1800.0, ge=0, description="how long a finished job is kept")
    shard_targets: int = Field(
        default=1_000, ge=4, le=5_000, description="targets of one GSE task; a window takes 1,500 times as many at most"
    )
    terminate_wait_seconds: float = Field(
        default=10.0, ge=0, le=3600, description="how long GSE may take to terminate targets at the end"
    )
    retries: int = Field(default=3, ge=0, description="retries of a target after a GSE task failed it")
    retry_pause_seconds: float = Field(default=5.0, ge=0, description="pause before that; doubles")
    ask_agent_states: bool = Field(
        default=True, description="whether GSE is asked for missing agents before a transfer"
    )
    silence_seconds: float = Field(
        default=60.0, gt=0, description="a target that GSE reports nothing of for this long has failed"
    )
    host_wait_seconds: float = Field(
        default=15.0, gt=0, description="a host that takes no activity for this long is replaced"
    )
    repository: Annotated[str, AfterValidator(_require_valid_repository_template)] = Field(
        default="store:transfers/{biz_id}/{signature}",
        description="where files are fetched: a URL, or store: and a key, with {biz_id}, {app_id}, {path}, {signature}",
    )
    repository_authorization: SecretStr = Field(
        default=SecretStr(""), description="the header Authorization of requests to the repository"
    )
    fetch_timeout_seconds: float = Field(default=600.0, gt=0, description="timeout of a fetch")
    file_max_bytes: int = Field(default=10 * 1024**3, ge=1, description="a larger file is not fetched")


class OrderSettings(SettingsGroup):
    """Orders. The options of each platform are configured through the API."""

    credentials_folder: Path = Field(
        default=Path(".haulage/credentials"), description="folder of NAME.json for each reference to credentials"
    )
    own_address: PublicBase = Field(
        default="",
        description="this API's address for workers, like http://api:8080, allowed for /v1/orders/source",
    )
    slices_ahead: int = Field(default=64, ge=1, le=500, description="slices of a platform that are claimed ahead")
    serve_seconds: float = Field(
        default=2.0,
        gt=0,
        description="how often a worker looks for platforms that no notification told it of",
    )
    skew_max_seconds: float = Field(default=300.0, gt=0, description="a larger difference of clocks is reported")
    stale_hours: float = Field(default=24.0, gt=0, description="a slice that is unfinished for this long is reported")
    copies_kept_days: int = Field(default=7, ge=1, description="how long exports can be made at a mark")
    raw_kept_days: int = Field(default=90, ge=1, description="how long raw pages are kept")


class TaskSettings(SettingsGroup):
    """Queues of tasks for outside workers."""

    lane_max_tasks: int = Field(
        default=5_000, ge=1, le=20_000, description="tasks of a lane; then the next lane begins"
    )
    wait_max_seconds: float = Field(
        default=30.0, ge=0, le=300, description="the longest wait of a hold; proxies must allow it"
    )
    runs_kept_hours: float = Field(default=1.0, ge=0, description="how long the engine keeps former runs of a lane")
    archive_kept_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="how long finished tasks and their `task_id` are kept; 0 for ever",
    )


class Settings(BaseSettings):
    """All settings of a process."""

    model_config = SettingsConfigDict(
        env_prefix="HAULAGE_",
        env_nested_delimiter="__",
        env_file=".env",
        extra="ignore",
        frozen=True,
    )

    data_dir: Path = Path(".haulage")
    log_level: LogLevel = "INFO"
    database: DatabaseSettings = DatabaseSettings()
    objects: ObjectSettings = ObjectSettings()
    guard: EgressGuardSettings = EgressGuardSettings()
    engine: EngineClientSettings = EngineClientSettings()
    api: ApiSettings = ApiSettings()
    secrets: SecretSettings = SecretSettings()
    worker: WorkerSlotsAndMetricsSettings = WorkerSlotsAndMetricsSettings()
    downloads: DownloadSettings = DownloadSettings()
    webhooks: WebhookSettings = WebhookSettings()
    gse: GseSettings = GseSettings()
    transfers: TransferSettings = TransferSettings()
    orders: OrderSettings = OrderSettings()
    addresses: AddressSettings = AddressSettings()
    tasks: TaskSettings = TaskSettings()
    traces: TraceSettings = TraceSettings()
    embedded: EmbeddedPortSettings = EmbeddedPortSettings()
    quotas: QuotaLimits = QuotaLimits()


@cache
def load_settings_from_environment() -> Settings:
    """Return the settings of this process; read them at the first call.

    Raises:
        Invalid: Some are invalid; the message names them without their values.
    """
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"{_build_variable_name(each['loc'])}: {_clean_message(each['msg'])}."
            for each in error.errors(include_input=False)
        ]
    except SettingsError as error:
        wrong = [_describe_value_that_is_no_json(error)]
    raise Invalid("settings_invalid", " ".join(wrong), "Correct the environment, or the file .env.")


def _describe_value_that_is_no_json(error: SettingsError) -> str:
    """Name the variable, without its value. Lists and objects are read as JSON before any field is checked."""
    # The error's text names the section alone, its cause has the value.
    section = _build_variable_name([str(error).split('"')[1]])
    value = getattr(error.__cause__, "doc", None)
    names = {name.upper() for name, each in os.environ.items() if each == value}
    if section in names:
        meant = _VARIABLES_OF_COMMANDS.get(section, f"one of the settings {section}__…")
        return f"{section} is a group of settings and takes no such value; did you mean {meant}?"
    name = next((each for each in sorted(names) if each.startswith(f"{section}__")), f"{section}__…")
    return (
        f"{name} holds a list or an object that is no JSON; quote its quotes, as in "
        "HAULAGE_GUARD__ALLOW='[\"127.0.0.1:9000\"]'."
    )


def _build_variable_name(path: Sequence[int | str]) -> str:
    return "HAULAGE_" + "__".join(str(step).upper() for step in path)


def _clean_message(message: str) -> str:
    return message.removeprefix("Value error, ").rstrip(".")


def list_variables_with_unused_values(given: BaseModel, used: BaseModel, path: Sequence[str] = ()) -> list[str]:
    """Return the variables that were given and whose values are not used; a list to which more was added is used."""
    replaced: list[str] = []
    for name in sorted(given.model_fields_set):
        before, after = getattr(given, name), getattr(used, name)
        if isinstance(before, Path):
            before, after = before.absolute(), after.absolute()
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            replaced += list_variables_with_unused_values(before, after, (*path, name))
        elif before != after and not (isinstance(before, list) and all(each in after for each in before)):
            replaced.append(_build_variable_name((*path, name)))
    return replaced
