"""Settings: one tree for every process, from `HAULAGE_…` variables and `.env`. Units stand in the names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from domain import egress
from domain.faults import Invalid
from infra.pubsub_settings import PubSubSettings, PushSettings


def _only_scheme_and_host(value: str) -> str:
    """A path would be signed differently from how it arrives."""
    parts = urlsplit(value)
    if value and (parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/")):
        raise ValueError(f"{value!r} is not scheme and host alone. Write it like https://files.example.com.")
    return value


PublicBase = Annotated[str, AfterValidator(_only_scheme_and_host)]


def _by_asyncpg(url: SecretStr) -> SecretStr:
    """PostgreSQL's own spelling of its addresses will do; the driver is our affair."""
    scheme, colon, rest = url.get_secret_value().partition("://")
    if scheme not in ("postgresql+asyncpg", "postgresql", "postgres") or not colon:
        raise ValueError("it is no address of PostgreSQL; write postgresql://user:password@host:5432/database")
    return SecretStr(f"postgresql+asyncpg://{rest}")


class DatabaseSettings(BaseModel):
    """PostgreSQL."""

    url: Annotated[SecretStr, AfterValidator(_by_asyncpg)] = SecretStr(
        "postgresql+asyncpg://haulage:haulage@127.0.0.1:5432/haulage"
    )
    pool_size: int = Field(default=8, ge=1)
    application_name: str = Field(default="haulage", description="what pg_stat_activity shows")
    statement_timeout_seconds: float = Field(default=60.0, ge=0, description="0 lets statements run for ever")


class ObjectSettings(BaseModel):
    """The S3 object store."""

    endpoint: str = "127.0.0.1:8333"
    secure: bool = False
    region: str = "us-east-1"
    bucket: str = "haulage"
    prefix: str = Field(default="", description="put before every key; lets several installations share a bucket")
    access_key: str = "haulage"
    secret_key: SecretStr = SecretStr("")
    public_base: PublicBase = Field(
        default="", description="scheme and host that browsers reach the store under, e.g. a CDN"
    )
    threads: int = Field(default=8, ge=1, description="requests to the store at once")


class GuardSettings(BaseModel):
    """What the guarded HTTP client may reach."""

    allow: list[str] = Field(default=[], description="addresses, address:port pairs and networks opened to sources")
    ports: list[int] = Field(default=[80, 443, 8080, 8443], description="ports reachable on public addresses")
    connect_timeout_seconds: float = Field(default=10.0, gt=0)
    pool_connections: int = Field(default=64, ge=1)

    @field_validator("allow")
    @classmethod
    def _readable(cls, allow: list[str]) -> list[str]:
        egress.EgressRules.parse(allow, ())
        return allow


class EngineSettings(BaseModel):
    """How we use Temporal. Its address, namespace and keys come from `TEMPORAL_…` (temporalio.envconfig)."""

    sticky_timeout_seconds: float = 1.0
    task_timeout_seconds: float = 2.0
    graceful_shutdown_seconds: float = 10.0
    ui_url: str = Field(default="", description="address of the Temporal Web UI, for links")


class ApiSettings(BaseModel):
    """The HTTP door."""

    host: str = "127.0.0.1"
    port: int = 8080
    own_port: int | None = Field(
        default=None, description="reaches this process alone; others of this machine may then listen on `port`, too"
    )
    admin_key: SecretStr = SecretStr("")
    body_max_bytes: int = 1024 * 1024
    body_timeout_seconds: float = 20.0
    request_timeout_seconds: float = 60.0
    keepalive_seconds: float = 30.0
    ping_seconds: float = Field(default=15.0, gt=0, description="pause between pings on open streams")
    streams_per_project: int = Field(default=100, ge=1, description="streams that a project may hold open, per process")
    public_base: PublicBase = Field(
        default="", description="scheme and host that links to us begin with; by default as the request named us"
    )
    session_hours: float = Field(
        default=12.0, gt=0, le=24 * 31, description="after which whoever signed in to the console signs in again"
    )

    @property
    def console_base(self) -> str:
        """Scheme and host of the console: as it is set, or as browsers on this machine reach an API that is here."""
        # A worker elsewhere is told no host, and its default is nobody's console.
        is_here = "host" in self.model_fields_set and self.host in {"127.0.0.1", "localhost"} and self.port
        return self.public_base or (f"http://{self.host}:{self.port}" if is_here else "")


class SecretSettings(BaseModel):
    """Keys of our own. `seal` lists Fernet keys, newest first; `pepper` hashes API keys."""

    seal: list[SecretStr] = []
    pepper: SecretStr = SecretStr("")


class WorkerSettings(BaseModel):
    """What a worker process takes on."""

    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, description="0 picks a free port")
    fetch_slots: int = Field(default=6, ge=1)
    render_slots: int = Field(default=1, ge=1, description="books rendered at a time; each takes a core")


class EmbeddedSettings(BaseModel):
    """Where the embedded parts listen, on 127.0.0.1. A taken port moves aside; 0 takes any free one."""

    engine_port: int = 7233
    ui_port: int = 8233
    database_port: int = 5432
    store_port: int = 8333


class PartyQuotas(BaseModel):
    """What each may do before it is told to wait. A download is active until its file is ready or it has failed."""

    submissions_per_minute: int = Field(default=60, ge=1)
    active: int = Field(default=10, ge=1)
    bytes_per_day: int = Field(default=20_000_000_000, ge=1, lt=10**15, description="of files made")


class QuotaSettings(BaseModel):
    """The quotas of each project, and of each operator within it."""

    project: PartyQuotas = PartyQuotas()
    operator: PartyQuotas = PartyQuotas()


class DownloadSettings(BaseModel):
    """The download center."""

    page_timeout_seconds: float = 30.0
    page_max_bytes: int = 64 * 1024 * 1024
    page_retries: int = 5
    retry_pause_seconds: float = Field(default=0.5, description="pause before a page is asked for again; doubles")
    retry_after_max_seconds: float = Field(
        default=300.0, ge=0, description="however long a source asks us to wait, it is asked again after so long"
    )
    max_task_retries: int = Field(default=3, ge=0, description="how often a failure that may pass is processed again")
    rerun_pause_seconds: float = Field(default=5.0, description="pause before that; doubles")
    slice_seconds: float = Field(
        default=10.0, ge=0, description="how long a fetcher keeps its place before it queues again"
    )
    resume_window_seconds: int = Field(default=300, ge=0, description="how long what is staged may be gone on from")
    requests_per_host: int = Field(default=10, ge=1, description="requests at a time, over all workers")
    excel_file_max_bytes: int = Field(
        default=10_000_000, ge=100_000, description="an Excel file that would be larger becomes several"
    )
    excel_file_max_rows: int = Field(
        default=800_000, ge=1, le=1_000_000, description="an Excel file that would have more rows becomes several"
    )
    quotas: QuotaSettings = QuotaSettings()


class WebhookSettings(BaseModel):
    """Deliveries to callback addresses, by Standard Webhooks."""

    timeout_seconds: float = Field(default=20.0, gt=0, le=30, description="what one attempt may take")
    retry_pauses_seconds: list[float] = Field(
        default=[5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400],
        description="pauses between attempts; when the list ends, the delivery has failed",
    )
    kept_days: int = Field(default=30, ge=1, description="how long deliveries that ended are listed")


class GseSettings(BaseModel):
    """GSE behind its API gateway, and this worker's host as the source of files."""

    base_url: str = Field(
        "", pattern=r"^(https?://[^\s/?#][^\s?#]*)?$", description="gateway's stage, like https://gse.example.com/prod"
    )
    app_code: str = ""
    app_secret: SecretStr = SecretStr("")
    username: str = Field(default="admin", description="in whose name GSE is asked; may be empty")
    tenant_id: str = ""
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    answer_timeout_seconds: float = Field(default=30.0, gt=0)
    concurrency: int = Field(default=50, ge=1, description="calls at a time, per worker process")
    calls_per_second: float = Field(default=0.0, ge=0, description="calls begun a second, per worker; 0: no limit")
    retries: int = Field(default=4, ge=0, description="of calls that may be repeated; a transfer is begun once")
    retry_pause_seconds: float = Field(default=0.5, ge=0, description="pause before a call is repeated; doubles")
    breaker_failures: int = Field(default=20, ge=1, description="calls failed in a row after which GSE is not called")
    breaker_seconds: float = Field(default=5.0, ge=0, description="for how long; then one call tries it")
    source_agent_id: str = Field(default="", description="this worker's host in GSE")
    source_container_id: str = Field(default="", description="empty where files are read on the host itself")
    source_user: str = Field(default="root", description="who reads files there")
    source_folder: str = Field(default="", description="cache_folder as GSE sees it; by default as we do")
    cache_folder: Path = Path(".haulage/transfers")
    cache_max_bytes: int = Field(default=10 * 1024**3, ge=1, description="files in use may exceed it")


def _known_repository(value: str) -> str:
    """A template that could not be filled in must fail at the start, not in the middle of a job."""
    names = "{biz_id}, {app_id}, {path} and {signature}"
    try:
        value.format(biz_id=1, app_id=1, path="p", signature="s")
    except (KeyError, IndexError, ValueError):
        raise ValueError(f"{value!r} holds a name in braces that is not known. Use {names}.") from None
    if not value.startswith(("http://", "https://", "store:")):
        raise ValueError(f"{value!r} begins with none of http://, https:// and store: (our object store). Add one.")
    return value


class TransferSettings(BaseModel):
    """Transfers of one file to many hosts. The first five must be the same for every API process."""

    window_seconds: int = Field(default=15, ge=1, le=3600, description="requests for a file in one window share a job")
    timeout_seconds: float = Field(default=600.0, gt=0, description="what is not done so long after the window fails")
    kept_seconds: float = Field(default=1800.0, ge=0, description="how long after its end a job can be asked about")
    shard_targets: int = Field(default=500, ge=1, le=5_000, description="targets of one GSE task")
    terminate_wait_seconds: float = Field(default=10.0, ge=0, description="GSE's time to give targets up at the end")
    retries: int = Field(default=3, ge=0, description="GSE tasks that a target is sent in again when one failed it")
    retry_pause_seconds: float = Field(default=5.0, ge=0, description="pause before that; doubles")
    ask_agent_states: bool = Field(
        default=True, description="whether GSE is asked before it is sent something which agents are not there"
    )
    silence_seconds: float = Field(
        default=60.0, gt=0, description="a target that GSE, answering, tells nothing of for so long has failed"
    )
    host_wait_seconds: float = Field(
        default=15.0, gt=0, description="a host that takes no step for so long is replaced by another"
    )
    repository: Annotated[str, AfterValidator(_known_repository)] = Field(
        default="store:transfers/{biz_id}/{signature}",
        description="where files are fetched: a URL, or store: and a key; over biz_id, app_id, path and signature",
    )
    repository_authorization: SecretStr = Field(
        default=SecretStr(""), description="sent to the repository as the header Authorization"
    )
    fetch_timeout_seconds: float = Field(default=600.0, gt=0, description="what one fetch may take")
    file_max_bytes: int = Field(default=10 * 1024**3, ge=1, description="a larger file is not fetched")


class OrderSettings(BaseModel):
    """Orders of platforms. What is said for each platform is configured through the API."""

    credentials_folder: Path = Field(
        default=Path(".haulage/credentials"), description="holds NAME.json for each reference to credentials"
    )
    own_address: PublicBase = Field(
        default="",
        description="our own API as workers reach it, like http://api:8080, opened for /v1/orders/source",
    )
    slices_ahead: int = Field(default=64, ge=1, le=500, description="slices of a platform claimed and not read yet")
    serve_seconds: float = Field(
        default=2.0, gt=0, description="how often a worker looks for new platforms and threads"
    )
    skew_max_seconds: float = Field(default=300.0, gt=0, description="a clock further off is reported")
    stale_hours: float = Field(default=24.0, gt=0, description="a slice that is not in after so long is reported")
    copies_kept_days: int = Field(default=7, ge=1, description="how long exports may be frozen at a mark")
    raw_kept_days: int = Field(default=90, ge=1, description="how long the pages of platforms are kept")


class ModuleSettings(BaseModel):
    """One of the four modules that keep addresses."""

    model_config = ConfigDict(frozen=True)

    base_url: str = Field(default="", description="where it mounts the contract, like https://im.example.com/haulage")
    credentials: str = Field(default="", description="NAME of a file NAME.json with its token; empty shows none")
    timeout_seconds: float = Field(default=30.0, gt=0, description="what one call may take")
    concurrency: int = Field(default=4, ge=1, description="calls at a time, per worker")
    batch: int = Field(default=1, ge=1, le=500, description="operations of one call; 1 where it takes no batches")
    retries: int = Field(default=2, ge=0, description="of a call that had no answer or an error")
    retry_pause_seconds: float = Field(default=0.2, ge=0, description="pause before that; doubles")
    breaker_failures: int = Field(default=5, ge=1, description="calls failed in a row after which it is not called")
    breaker_seconds: float = Field(default=10.0, ge=0, description="for how long; then one call tries it")


class ModulesSettings(BaseModel):
    """The four modules."""

    ed: ModuleSettings = ModuleSettings()
    im: ModuleSettings = ModuleSettings()
    wfm: ModuleSettings = ModuleSettings()
    od: ModuleSettings = ModuleSettings()


class AddressSettings(BaseModel):
    """Change messages of addresses, and the cycle that applies them in four modules."""

    threshold: int = Field(default=10_000, ge=1, le=50_000, description="messages of a cycle (INFI_SYNC_THRESHOLD)")
    minimum_share: float = Field(
        default=0.1, ge=0, le=0.33, description="of the threshold, kept for each topic whatever goes before it"
    )
    pause_seconds: float = Field(default=60.0, ge=1, description="until the next look when there was nothing to do")
    retries: int = Field(default=2, ge=1, description="failed cycles after which a message waits for a person")
    retry_pause_seconds: float = Field(default=0.0, ge=0, description="before a message is tried again; doubles")
    run_messages: int = Field(default=500, ge=1, le=500, description="messages that are applied in one step")
    runs: int = Field(default=4, ge=1, description="such steps at a time, where order does not count")
    check_hours: float = Field(default=24.0, gt=0, description="how often logical deletes are checked")
    auto_purge: bool = Field(default=False, description="remove at once what a check finds removable")
    kept_days: int = Field(default=400, ge=32, description="how long messages that are done or unreadable are kept")
    message_max_bytes: int = Field(
        default=1024 * 1024, ge=1, le=10 * 1024 * 1024, description="a larger message is put into quarantine"
    )
    credentials_folder: Path = Field(
        default=Path(".haulage/credentials"), description="holds NAME.json for each module's credentials"
    )
    modules: ModulesSettings = ModulesSettings()
    pubsub: PubSubSettings = PubSubSettings()
    push: PushSettings = PushSettings()


class TaskSettings(BaseModel):
    """Queues of tasks for workers outside."""

    lane_max_tasks: int = Field(
        default=5_000, ge=1, le=20_000, description="tasks after which a lane is full and the next one begins"
    )
    wait_max_seconds: float = Field(
        default=30.0, ge=0, le=300, description="a hold that may wait for longer is answered then; see to your proxies"
    )
    runs_kept_hours: float = Field(
        default=1.0, ge=0, description="for which the engine keeps what a lane did before it went on as a new run"
    )
    archive_kept_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="for which tasks are kept after their end, and their `task_id` stands for them; 0 is for ever",
    )


class Settings(BaseSettings):
    """The whole tree."""

    model_config = SettingsConfigDict(
        env_prefix="HAULAGE_", env_nested_delimiter="__", env_file=".env", extra="ignore", frozen=True
    )

    data_dir: Path = Path(".haulage")
    log_level: str = "INFO"
    database: DatabaseSettings = DatabaseSettings()
    objects: ObjectSettings = ObjectSettings()
    guard: GuardSettings = GuardSettings()
    engine: EngineSettings = EngineSettings()
    api: ApiSettings = ApiSettings()
    secrets: SecretSettings = SecretSettings()
    worker: WorkerSettings = WorkerSettings()
    downloads: DownloadSettings = DownloadSettings()
    webhooks: WebhookSettings = WebhookSettings()
    gse: GseSettings = GseSettings()
    transfers: TransferSettings = TransferSettings()
    orders: OrderSettings = OrderSettings()
    addresses: AddressSettings = AddressSettings()
    tasks: TaskSettings = TaskSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()


@cache
def load() -> Settings:
    """The settings of this process, read once.

    Raises:
        Invalid: Some of them are wrong; the sentence names them, and never says what they hold.
    """
    try:
        return Settings()
    except ValidationError as error:
        wrong = [f"{_variable(each['loc'])}: {_reason(each['msg'])}." for each in error.errors(include_input=False)]
    raise Invalid("settings_invalid", " ".join(wrong), "Mend the environment, or the file .env.")


def _variable(path: Sequence[int | str]) -> str:
    return "HAULAGE_" + "__".join(str(step).upper() for step in path)


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").rstrip(".")
