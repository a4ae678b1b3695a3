"""Settings that operators change through the API. What they leave out comes from the environment of each process."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from domain.addresses.operations import BATCH_MAX, Module


class _OptionalSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def set_values(self) -> dict[str, Any]:
        """The values that are set, by name."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class AddressModuleOptions(_OptionalSettings):
    """Settings of one module; None leaves the environment's value in force."""

    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s?#]+$",
        max_length=500,
        description="where it mounts the contract; the guard must allow it (HAULAGE_GUARD__ALLOW)",
    )
    credentials: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
        description="NAME of a file NAME.json in HAULAGE_ADDRESSES__CREDENTIALS_FOLDER; empty shows no token",
    )
    timeout_seconds: float | None = Field(default=None, gt=0, le=3_600, description="what one call may take")
    concurrency: int | None = Field(default=None, ge=1, le=1_000, description="calls at a time, on each worker")
    batch: int | None = Field(
        default=None, ge=1, le=BATCH_MAX, description="operations of one call; 1 where it takes no batches"
    )
    retries: int | None = Field(default=None, ge=0, le=100, description="of a call that had no answer or an error")
    retry_pause_seconds: float | None = Field(default=None, ge=0, le=10, description="pause before that; doubles")
    breaker_failures: int | None = Field(
        default=None, ge=1, le=1_000, description="calls failed in a row after which it is left alone"
    )
    breaker_seconds: float | None = Field(
        default=None, ge=0, le=3_600, description="for how long; then one call tries it"
    )


class AddressModulesOptions(_OptionalSettings):
    """Settings of each module."""

    ed: AddressModuleOptions | None = None
    im: AddressModuleOptions | None = None
    wfm: AddressModuleOptions | None = None
    od: AddressModuleOptions | None = None

    def get_module(self, module: Module) -> AddressModuleOptions:
        found: AddressModuleOptions | None = getattr(self, module)
        return found or AddressModuleOptions()


class AddressOptions(_OptionalSettings):
    """Settings of one version; None leaves the environment's value in force."""

    threshold: int | None = Field(default=None, ge=1, le=50_000, description="messages of a cycle")
    minimum_share: float | None = Field(
        default=None, ge=0, le=0.33, description="of the threshold, kept for each topic whatever goes before it"
    )
    pause_seconds: float | None = Field(
        default=None, ge=1, le=86_400, description="until the next look at the log when there was nothing to do"
    )
    retries: int | None = Field(
        default=None, ge=1, le=1_000, description="failed cycles after which a message waits for a person"
    )
    retry_pause_seconds: float | None = Field(
        default=None, ge=0, le=86_400, description="before a message is tried again; doubles"
    )
    run_messages: int | None = Field(default=None, ge=1, le=500, description="messages that are applied in one step")
    runs: int | None = Field(default=None, ge=1, le=100, description="such steps at a time, where order does not count")
    check_hours: float | None = Field(
        default=None, ge=0.01, le=8_760, description="how often logical deletes are checked"
    )
    auto_purge: bool | None = Field(default=None, description="remove at once what a check finds removable")
    modules: AddressModulesOptions | None = None

    def get_module(self, module: Module) -> AddressModuleOptions:
        return (self.modules or AddressModulesOptions()).get_module(module)


def apply_changes(before: AddressOptions, changes: AddressOptions) -> AddressOptions:
    """Return the options with some changed: a field that is not sent keeps its value, null removes it."""
    update = {name: getattr(changes, name) for name in changes.model_fields_set - {"modules"}}
    if "modules" in changes.model_fields_set:
        update["modules"] = changes.modules and _apply_module_changes(before, changes.modules)
    return before.model_copy(update=update)


def _apply_module_changes(before: AddressOptions, changes: AddressModulesOptions) -> AddressModulesOptions:
    update: dict[str, AddressModuleOptions | None] = {}
    for name in changes.model_fields_set:
        module = Module(name)
        sent: AddressModuleOptions | None = getattr(changes, name)
        if sent is None:
            update[name] = None
        else:
            fields = {each: getattr(sent, each) for each in sent.model_fields_set}
            update[name] = before.get_module(module).model_copy(update=fields)
    return (before.modules or AddressModulesOptions()).model_copy(update=update)
