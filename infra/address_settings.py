"""The settings of addresses: the cycle, the four modules, and Google Pub/Sub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_validator

from infra.component_settings import SettingsGroup

GOOGLE: Final = "https://pubsub.googleapis.com"
METADATA: Final = "metadata"
"""In place of a key file: the machine's own service account on Google Cloud."""


def _require_http_url_or_empty(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if value and (not is_address or parts.query or parts.fragment):
        raise ValueError("it is not an address of a web service. Write it like https://host.example.com/path.")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_require_http_url_or_empty)]


class SubscriptionSettings(SettingsGroup):
    """The subscription of each topic, within the project."""

    swap: str = "swapDeleteInfinityAddress-haulage"
    create_update: str = "createUpdateInfinityAddress-haulage"
    delete: str = "deleteInfinityAddress-haulage"


class PubSubSettings(SettingsGroup):
    """Google Pub/Sub as the source of messages."""

    project: str = Field(default="", description="the project of pulled subscriptions; empty if all are pushed")
    base_url: WebAddress = Field(default=GOOGLE, description="another address for an emulator")
    key_file: str = Field(
        default="",
        description="path of a service account's key, or `metadata` on Google Cloud; empty for an emulator",
    )
    pull_max: int = Field(default=1_000, ge=1, le=1_000, description="messages per pull")
    pulls: int = Field(default=2, ge=1, le=16, description="concurrent pulls of a topic")
    timeout_seconds: float = Field(default=90.0, gt=0, description="timeout of a pull, which waits for messages")
    subscriptions: SubscriptionSettings = SubscriptionSettings()


class PubSubPushSettings(SettingsGroup):
    """Pushes are accepted with a signed token of Google, or with a shared secret."""

    audience: str = Field(default="", description="the audience of signed tokens; empty refuses them all")
    email: str = Field(default="", description="the service account of signed tokens; required with the audience")
    issuers: list[str] = Field(default=["https://accounts.google.com", "accounts.google.com"])
    keys_url: WebAddress = Field(
        default="https://www.googleapis.com/oauth2/v3/certs", description="address of Google's public keys"
    )
    secret: SecretStr = Field(
        default=SecretStr(""),
        description="a shared secret, `?token=` in the push address; empty refuses it",
    )

    @field_validator("secret")
    @classmethod
    def _require_long_secret(cls, secret: SecretStr) -> SecretStr:
        if 0 < len(secret.get_secret_value()) < 16:
            raise ValueError("it has fewer than 16 characters and could be guessed. Create a longer one.")
        return secret


class ModuleSettings(SettingsGroup):
    """One of the four modules that keep addresses."""

    model_config = ConfigDict(frozen=True)

    base_url: WebAddress = Field(
        default="", description="the root of its contract, like https://im.example.com/haulage"
    )
    credentials: str = Field(default="", description="NAME of a file NAME.json with its token; empty for none")
    timeout_seconds: float = Field(default=30.0, gt=0, description="timeout of a call")
    concurrency: int = Field(default=4, ge=1, description="concurrent calls, per worker")
    batch: int = Field(default=1, ge=1, le=500, description="operations of a call; 1 if it takes no batches")
    retries: int = Field(default=2, ge=0, description="retries of a call without an answer, or with an error")
    retry_pause_seconds: float = Field(default=0.2, ge=0, description="pause before that; doubles")
    breaker_failures: int = Field(
        default=5, ge=1, description="consecutive failures after which it is not called for a while"
    )
    breaker_seconds: float = Field(default=10.0, ge=0, description="how long; then one call is made as a trial")
    paused: bool = Field(default=False, description="it is not called; what needs it waits, and costs no try")


class AllModulesSettings(SettingsGroup):
    """The four modules."""

    ed: ModuleSettings = ModuleSettings()
    im: ModuleSettings = ModuleSettings()
    wfm: ModuleSettings = ModuleSettings()
    od: ModuleSettings = ModuleSettings()

    @property
    def paused(self) -> list[str]:
        """The names of the modules that are not called."""
        return [name for name in type(self).model_fields if getattr(self, name).paused]


class AddressSettings(SettingsGroup):
    """Change messages of addresses, and the cycle that applies them in four modules."""

    threshold: int = Field(default=10_000, ge=1, le=50_000, description="messages of a cycle (INFI_SYNC_THRESHOLD)")
    minimum_share: float = Field(
        default=0.1, ge=0, le=0.33, description="share of the threshold that each topic has for itself"
    )
    pause_seconds: float = Field(
        default=60.0, ge=1, description="pause until the next cycle if there was nothing to do"
    )
    failed_cycles_max: int = Field(
        default=2, ge=1, description="failed cycles after which a message waits for an operator"
    )
    retry_pause_seconds: float = Field(default=0.0, ge=0, description="pause before a message is retried; doubles")
    group_messages_max: int = Field(default=500, ge=1, le=500, description="messages that are sent together")
    step_concurrency: int = Field(
        default=4, ge=1, description="steps that run in parallel, where order does not matter"
    )
    check_hours: float = Field(default=24.0, gt=0, description="how often logical deletes are checked")
    auto_purge: bool = Field(default=False, description="remove what a check finds removable")
    kept_days: int = Field(default=400, ge=32, description="how long finished and unreadable messages are kept")
    message_max_bytes: int = Field(
        default=1024 * 1024, ge=1, le=10 * 1024 * 1024, description="a larger message goes to quarantine"
    )
    credentials_folder: Path = Field(
        default=Path(".haulage/credentials"), description="folder of NAME.json for each module's credentials"
    )
    modules: AllModulesSettings = AllModulesSettings()
    pubsub: PubSubSettings = PubSubSettings()
    push: PubSubPushSettings = PubSubPushSettings()

    @property
    def is_configured(self) -> bool:
        """Whether messages can come in, or a module is named."""
        modules = (self.modules.ed, self.modules.im, self.modules.wfm, self.modules.od)
        takes_pushes = bool(self.push.audience or self.push.secret.get_secret_value())
        return takes_pushes or bool(self.pubsub.project) or any(module.base_url for module in modules)
