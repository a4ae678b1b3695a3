"""Configuration: what operators set through the API. What they leave out comes from the environment of each process."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from domain.addresses.operations import BATCH_MAX, Module


class _Level(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def said(self) -> dict[str, Any]:
        """What is set, by name."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class ModuleOptions(_Level):
    """What is set for one module."""

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


class ModulesOptions(_Level):
    """What is set for each module."""

    ed: ModuleOptions | None = None
    im: ModuleOptions | None = None
    wfm: ModuleOptions | None = None
    od: ModuleOptions | None = None

    def of(self, module: Module) -> ModuleOptions:
        """What is set for this one."""
        found: ModuleOptions | None = getattr(self, module)
        return found or ModuleOptions()


class Options(_Level):
    """What a version sets."""

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
    modules: ModulesOptions | None = None

    def of(self, module: Module) -> ModuleOptions:
        """What is set for a module."""
        return (self.modules or ModulesOptions()).of(module)


def changed(before: Options, changes: Options) -> Options:
    """The options after a change of some: what is not named stays, null takes a value away."""
    update = {name: getattr(changes, name) for name in changes.model_fields_set - {"modules"}}
    if "modules" in changes.model_fields_set:
        update["modules"] = changes.modules and _changed_modules(before, changes.modules)
    return before.model_copy(update=update)


def _changed_modules(before: Options, changes: ModulesOptions) -> ModulesOptions:
    update: dict[str, ModuleOptions | None] = {}
    for name in changes.model_fields_set:
        module = Module(name)
        said: ModuleOptions | None = getattr(changes, name)
        if said is None:
            update[name] = None
        else:
            fields = {each: getattr(said, each) for each in said.model_fields_set}
            update[name] = before.of(module).model_copy(update=fields)
    return (before.modules or ModulesOptions()).model_copy(update=update)
