"""The settings of Google Pub/Sub: what is pulled from it, and what it may push."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, SecretStr, field_validator

GOOGLE: Final = "https://pubsub.googleapis.com"
METADATA: Final = "metadata"
"""In place of a key file: the machine's own service account on Google Cloud."""


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment):
        raise ValueError(f"{value!r} is no address of a web service. Write it like https://host.example.com/path.")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]


class SubscriptionSettings(BaseModel):
    """The subscription of each topic, within the project."""

    swap: str = "swapDeleteInfinityAddress-haulage"
    create_update: str = "createUpdateInfinityAddress-haulage"
    delete: str = "deleteInfinityAddress-haulage"


class PubSubSettings(BaseModel):
    """Google Pub/Sub as the source of messages."""

    project: str = Field(default="", description="of the subscriptions that are pulled; empty where all are pushed")
    base_url: WebAddress = Field(default=GOOGLE, description="another address for an emulator")
    key_file: str = Field(
        default="",
        description="path of a service account's key, or `metadata` on Google Cloud; empty for an emulator",
    )
    pull_max: int = Field(default=1_000, ge=1, le=1_000, description="messages of one pull")
    pulls: int = Field(default=2, ge=1, le=16, description="pulls of a topic at a time")
    timeout_seconds: float = Field(default=90.0, gt=0, description="what one call may take; a pull waits for messages")
    subscriptions: SubscriptionSettings = SubscriptionSettings()


class PushSettings(BaseModel):
    """What is pushed to us shows a signed token of Google, or a secret of ours."""

    audience: str = Field(default="", description="what signed tokens are made out for; empty refuses them all")
    email: str = Field(default="", description="the service account that signs pushes; needed beside the audience")
    issuers: list[str] = ["https://accounts.google.com", "accounts.google.com"]
    keys_url: WebAddress = Field(
        default="https://www.googleapis.com/oauth2/v3/certs", description="public keys of who signs"
    )
    secret: SecretStr = Field(
        default=SecretStr(""),
        description="or this, behind `?token=` in the address that Pub/Sub is told; empty refuses it",
    )

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, secret: SecretStr) -> SecretStr:
        if 0 < len(secret.get_secret_value()) < 16:
            raise ValueError("it has fewer than 16 characters and could be guessed. Draw a longer one.")
        return secret
