"""How long everything is kept: `python -m tests.support.retention` writes the table of `docs/how-to/operate.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import settings_reference

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/operate.md"
BEGIN, END = "<!-- retention: begin -->", "<!-- retention: end -->"


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that is stored, and for how long."""

    what: str
    where: tuple[str, ...]
    """Tables, or prefixes of the bucket; empty for what the engine has."""

    setting: str = ""
    """The variable that says how long."""

    unit: str = "days"
    fixed: str = ""
    """Without a setting: how long, and why."""

    by: str = ""
    """The schedule that removes it."""


DOWNLOADS, TRANSFERS, ORDERS = "downloads-housekeeping", "transfers-housekeeping", "orders-housekeeping"
ADDRESSES, TASKS, WEBHOOKS = "addresses-housekeeping", "tasks-housekeeping", "webhooks-housekeeping"
OWNED: Final = "until it is removed: it is configuration"

RETENTIONS: Final = (
    Kept("files of downloads", ("files/",), fixed="7 days, or `expires_in` of the request", by=DOWNLOADS),
    Kept(
        "rows of downloads that have ended and have no file",
        ("downloads",),
        "HAULAGE_DOWNLOADS__ROWS_KEPT_DAYS",
        by=DOWNLOADS,
    ),
    Kept(
        "rows and uploads of downloads that are being made",
        ("staging/", "inline/"),
        fixed="a day after their download is over",
        by=DOWNLOADS,
    ),
    Kept("idempotency keys", ("idempotency_keys",), "HAULAGE_API__IDEMPOTENCY_KEPT_DAYS", by=WEBHOOKS),
    Kept("the audit log", ("audit_log",), "HAULAGE_API__AUDIT_KEPT_DAYS", by=WEBHOOKS),
    Kept(
        "webhook deliveries that have ended",
        ("webhook_deliveries", "webhook_attempts"),
        "HAULAGE_WEBHOOKS__KEPT_DAYS",
        by=WEBHOOKS,
    ),
    Kept("webhook secrets", ("webhook_secrets",), fixed="until a rotation's overlap is over; then they are refused"),
    Kept(
        "targets of transfers",
        ("transfer_targets", "transfer_shards"),
        "HAULAGE_TRANSFERS__KEPT_SECONDS",
        "seconds",
        by=TRANSFERS,
    ),
    Kept(
        "transfer jobs, to say that they have expired",
        ("transfer_jobs",),
        fixed="7 days longer than their targets",
        by=TRANSFERS,
    ),
    Kept("cancellations of transfers", ("transfer_cancels",), fixed="a day", by=TRANSFERS),
    Kept("copies of orders that were replaced", ("order_copies",), "HAULAGE_ORDERS__COPIES_KEPT_DAYS", by=ORDERS),
    Kept("raw pages of platforms", ("orders-raw/",), "HAULAGE_ORDERS__RAW_KEPT_DAYS", by=ORDERS),
    Kept("answers that an attempt left for the next", ("orders-staging/",), fixed="7 days", by=ORDERS),
    Kept("orders", ("orders",), fixed="for ever: they are the data"),
    Kept(
        "the ledger of slices, back-fills",
        ("order_slices", "order_backfills"),
        fixed="as long as their platform: `complete_to` is computed from it",
    ),
    Kept(
        "reports of orders and of addresses",
        ("orders-reports/", "addresses-comparisons/"),
        fixed="for ever; a report of orders of the same name replaces it. A comparison has a workbook of each attempt "
        "in `addresses-comparisons/NAME/`: when it has ended, all but the one in `NAME.json` may be deleted",
    ),
    Kept(
        "unfinished messages of addresses", ("im_infi_addr_sync_log",), fixed="until they are done: cycles archive them"
    ),
    Kept(
        "archived messages, keys, quarantine",
        ("im_infi_addr_sync_log_his", "addr_sync_keys", "addr_sync_quarantine"),
        "HAULAGE_ADDRESSES__KEPT_DAYS",
        by=ADDRESSES,
    ),
    Kept("logical deletes", ("addr_logical_deletes",), fixed="for ever: a purged one is the proof of it"),
    Kept("actions on messages of addresses", ("addr_audit",), fixed="for ever: they are shown with their message"),
    Kept(
        "ended tasks, their keys and texts",
        ("tasks_archive", "task_keys", "task_contents"),
        "HAULAGE_TASKS__ARCHIVE_KEPT_DAYS",
        by=TASKS,
    ),
    Kept("texts of no task", ("task_texts_settled",), fixed="a day", by=TASKS),
    Kept("counts of ended tasks", ("task_counts",), fixed="for ever: they outlive the tasks"),
    Kept("heads of lanes", ("task_heads",), fixed="until their lane ends"),
    Kept("former runs of lanes", (), "HAULAGE_TASKS__RUNS_KEPT_HOURS", "hours", by=TASKS),
    Kept("histories of workflows", (), fixed="the retention of the engine's namespace, 72 hours as deployed"),
    Kept(
        "permits and leases of limits",
        ("limit_leases", "limit_shares", "limit_spending"),
        fixed="until they run out; the slot of a download that has not reported its end, a week longer",
        by=DOWNLOADS,
    ),
    Kept("projects and keys", ("projects", "api_keys"), fixed="for ever: the audit log names them"),
    Kept(
        "keys that the engine's payloads were encrypted with",
        ("payload_keys",),
        fixed="for ever: a row for each key",
    ),
    Kept("heartbeats of workers", ("worker_heartbeats",), fixed="until the process ends; a day if it was killed"),
    Kept("migrations that the database has had", ("schema_revisions",), fixed="for ever: a row for each migration"),
    Kept("pauses of systems and of types of tasks", ("system_pauses",), fixed="until it is resumed"),
    Kept(
        "platforms, types, options, permissions",
        ("order_platforms", "order_settings", "addr_settings", "task_types", "transfer_openings"),
        fixed=OWNED,
    ),
)


def find_default(setting: str) -> str:
    """Return the default of a setting."""
    [found] = [each for each in settings_reference.variables() if each.name == setting]
    return found.default.strip("`")


def render() -> str:
    """Return the table as Markdown."""
    lines = ["| what | where | kept | setting | removed by |", "|---|---|---|---|---|"]
    for kept in RETENTIONS:
        default = find_default(kept.setting) if kept.setting else ""
        time = kept.fixed or ("for ever" if default == "0" else f"{float(default):g} {kept.unit}")
        where = ", ".join(f"`{each}`" for each in kept.where) or "engine"
        setting = f"`{kept.setting}`" if kept.setting else ""
        lines.append(f"| {kept.what} | {where} | {time} | {setting} | {kept.by and f'`{kept.by}`'} |")
    return "\n".join(lines)


def read_page() -> str:
    """Return the table as the page has it."""
    found = re.search(f"{BEGIN}\n(.*)\n{END}", PAGE.read_text(), re.DOTALL)
    return found[1] if found else ""


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{render()}\n{END}{tail}")


if __name__ == "__main__":
    main()
