"""Every flag of the embedded servers, with its reason and what it was measured to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Value = bool | int | str
Reach = Literal["everywhere", "embedded", "tests"]


@dataclass(frozen=True)
class Flag:
    """One flag."""

    name: str
    value: Value
    reason: str
    effect: str
    reach: Reach = "embedded"


ENGINE_DYNAMIC: tuple[Flag, ...] = (
    Flag("history.transferProcessorMaxPollRPS", 1000, "", ""),
    Flag("history.timerProcessorMaxPollRPS", 1000, "", ""),
    Flag("history.maxInFlightUpdates", 1000, "", "", "everywhere"),
    Flag("matching.numTaskqueueReadPartitions", 1, "", "", "everywhere"),
    Flag("matching.numTaskqueueWritePartitions", 1, "", "", "everywhere"),
    Flag("matching.enableFairness", True, "", "", "everywhere"),
    Flag("frontend.enableCancelWorkerPollsOnShutdown", True, "", "", "everywhere"),
    Flag("frontend.enableServerVersionCheck", False, "", "", "everywhere"),
    Flag("frontend.WorkflowTimeSkippingEnabled", True, "", "", "tests"),
    Flag("limit.maxIDLength", 255, "", "", "everywhere"),
)
ENGINE_ARGUMENTS = (
    Flag("--sqlite-pragma", "journal_mode=wal", "", ""),
    Flag("--sqlite-pragma", "synchronous=2", "", ""),
    Flag("--log-level", "warn", "", ""),
)
DATABASE = (
    Flag("listen_addresses", "127.0.0.1", "", ""),
    Flag("unix_socket_directories", "", "", ""),
    Flag("max_connections", 200, "", ""),
    Flag("shared_buffers", "128MB", "", ""),
)
DATABASE_LAYOUT = (
    Flag("--auth", "scram-sha-256", "", ""),
    Flag("--encoding", "UTF8", "", ""),
    Flag("--locale-provider", "builtin", "", ""),
    Flag("--locale", "C.UTF-8", "", ""),
)
STORE = (
    Flag("ip", "127.0.0.1", "", ""),
    Flag("ip.bind", "127.0.0.1", "", ""),
    Flag("webdav", False, "", ""),
    Flag("admin.ui", False, "", ""),
    Flag("s3.port.iceberg", 0, "", ""),
    Flag("s3.port.lance", 0, "", ""),
    Flag("s3.autoCreateBucket", False, "", ""),
    Flag("master.telemetry", False, "", ""),
    Flag("volume.preStopSeconds", 0, "", ""),
)


def engine(*, ui: bool, time_skipping: bool) -> list[str]:
    """Arguments of the Temporal dev server."""
    arguments = [text for flag in ENGINE_ARGUMENTS for text in (flag.name, str(flag.value))]
    dynamic = [flag for flag in ENGINE_DYNAMIC if flag.reach != "tests" or time_skipping]
    arguments += [text for flag in dynamic for text in ("--dynamic-config-value", f"{flag.name}={_text(flag.value)}")]
    return arguments + (["--ui-disable-news-fetch"] if ui else [])


def database(port: int) -> dict[str, str]:
    """Settings of PostgreSQL."""
    return {"port": str(port), **{flag.name: _text(flag.value) for flag in DATABASE}}


def database_layout(user: str) -> list[str]:
    """Arguments of initdb."""
    return [f"--username={user}", *(f"{flag.name}={_text(flag.value)}" for flag in DATABASE_LAYOUT)]


def store() -> dict[str, str]:
    """Arguments of `weed mini`."""
    return {flag.name: _text(flag.value) for flag in STORE}


def store_globals() -> list[str]:
    """Arguments of `weed` itself."""
    return []


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
