"""Tables of orders: platforms with their watermarks, configuration by version, the ledger of slices, and the orders."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field

from infra.database import TableRow, UtcTime
from stores.tables import SEALED

TRACKS = ("live", "history")
_KNOWN_TRACK = "track IN ({})".format(", ".join(f"'{track}'" for track in TRACKS))
BACKFILL_STATES = ("running", "succeeded", "failed")
_KNOWN_BACKFILL_STATE = "state IN ({})".format(", ".join(f"'{state}'" for state in BACKFILL_STATES))
_UNFINISHED = text("done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL")
_SWEEP_FAILED = text("done_at IS NOT NULL AND swept_at IS NULL AND failed_at IS NOT NULL")


class OrderPlatform(TableRow, table=True):
    """One account: a kind of platform and a shop, with its watermarks."""

    __tablename__ = "order_platforms"

    platform: str = Field(primary_key=True, sa_type=Text)
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    kind: str = Field(sa_type=Text)
    shop: str = Field(sa_type=Text)
    base_url: str = Field(sa_type=Text)
    # What a platform can do whose kind is not built in.
    capability: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    notify: str | None = Field(default=None, sa_type=Text, sa_column_kwargs={"info": SEALED})
    created_at: datetime = Field(sa_type=UtcTime)
    starts_at: datetime | None = Field(default=None, sa_type=UtcTime)
    history_to: datetime | None = Field(default=None, sa_type=UtcTime)
    live_from: datetime | None = Field(default=None, sa_type=UtcTime)
    claimed_to: datetime | None = Field(default=None, sa_type=UtcTime)
    complete_to: datetime | None = Field(default=None, sa_type=UtcTime)
    # Grows by one with each commit of orders; marks of exports refer to it.
    revision: int = Field(default=0, sa_type=BigInteger)
    # The revision at which the declaration of its rows was changed last: the times of earlier copies may be others.
    declared_revision: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    # The platform's clock minus the database's.
    skew_seconds: float | None = None
    skew_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # Since when its clock cannot be read, and why; the alarm is sent once it has lasted.
    clock_failed_since: datetime | None = Field(default=None, sa_type=UtcTime)
    clock_fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    # The time of the failure that the alarm was sent for: asked again for the same one, it is sent again.
    clock_alarm_for: datetime | None = Field(default=None, sa_type=UtcTime)
    # Since when the platform refuses the credentials, and why; since when they work again, when they were tried last,
    # and which refusal the alarm was sent for.
    credentials_failed_since: datetime | None = Field(default=None, sa_type=UtcTime)
    credentials_fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    credentials_good_at: datetime | None = Field(default=None, sa_type=UtcTime)
    credentials_tried_at: datetime | None = Field(default=None, sa_type=UtcTime)
    credentials_alarm_for: datetime | None = Field(default=None, sa_type=UtcTime)
    unserved_since: datetime | None = Field(default=None, sa_type=UtcTime)
    # The activities that decided to send the alarms about its worker, its clock and its sweeps: one that is repeated,
    # since its worker was lost with the alarm, returns it again. The last is null while none of its sweeps fails.
    unserved_alarm_by: str | None = Field(default=None, sa_type=Text)
    skew_alarm_by: str | None = Field(default=None, sa_type=Text)
    sweeps_alarm_by: str | None = Field(default=None, sa_type=Text)
    # When the platform's filter was seen to use the declared time zone.
    zone_checked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # The row of a removed platform says whose its orders are.
    removed_at: datetime | None = Field(default=None, sa_type=UtcTime)


class OrderOptionsVersion(TableRow, table=True):
    """One version of the options of a level; the newest of each level is in force."""

    __tablename__ = "order_settings"
    __table_args__ = (Index("ix_order_settings_platform_version", "platform", text("version DESC")),)

    version: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    platform: str = Field(sa_type=Text)
    options: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    changed_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class OrderSlice(TableRow, table=True):
    """One slice that was claimed, and its end. A slice that was split stays, beside its halves."""

    __tablename__ = "order_slices"
    __table_args__ = (
        CheckConstraint(_KNOWN_TRACK, name="track"),
        Index("uq_order_slices_leaf", "platform", "start_at", unique=True, postgresql_where=text("split_at IS NULL")),
        Index("uq_order_slices_window", "platform", "start_at", "end_at", unique=True),
        Index("ix_order_slices_unfinished", "platform", "start_at", postgresql_where=_UNFINISHED),
        Index(
            "ix_order_slices_unswept",
            "platform",
            text("coalesce(failed_at, done_at)"),
            postgresql_where=text("done_at IS NOT NULL AND swept_at IS NULL"),
        ),
        Index("ix_order_slices_sweep_failed", "platform", postgresql_where=_SWEEP_FAILED),
        Index("ix_order_slices_reread", "platform", "start_at", postgresql_where=text("reread_since IS NOT NULL")),
        Index("ix_order_slices_stale", "platform", postgresql_where=text("stale_told_at IS NOT NULL")),
        Index("ix_order_slices_missed", "platform", postgresql_where=text("missed > 0")),
    )

    slice_id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    platform: str = Field(
        sa_type=Text, sa_column_args=[ForeignKey("order_platforms.platform", ondelete="CASCADE")], nullable=False
    )
    start_at: datetime = Field(sa_type=UtcTime)
    end_at: datetime = Field(sa_type=UtcTime)
    track: str = Field(sa_type=Text)
    claimed_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))
    # The attempt that has the slice: a worker that was considered lost finds another name here and writes nothing.
    holder: str | None = Field(default=None, sa_type=Text)
    attempts: int = 0
    settings_version: int | None = Field(default=None, sa_type=BigInteger)
    # When it was first read, by the platform's clock.
    read_at: datetime | None = Field(default=None, sa_type=UtcTime)
    done_at: datetime | None = Field(default=None, sa_type=UtcTime)
    failed_at: datetime | None = Field(default=None, sa_type=UtcTime)
    skipped_at: datetime | None = Field(default=None, sa_type=UtcTime)
    split_at: datetime | None = Field(default=None, sa_type=UtcTime)
    swept_at: datetime | None = Field(default=None, sa_type=UtcTime)
    fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    reason: str | None = Field(default=None, sa_type=Text)
    orders: int | None = None
    changed: int | None = None
    total: int | None = None
    passes: int | None = None
    pages: int | None = None
    outside: int | None = None
    undated: int | None = None
    missed: int | None = None
    # Age of the oldest of them, by the platform's clock, at the first reading, which missed it.
    late_seconds: float | None = None
    digest: bytes | None = Field(default=None, sa_type=LargeBinary)
    raw_key: str | None = Field(default=None, sa_type=Text)
    # Requested readings of a complete slice: since when one runs, when the last ended, and why it failed.
    reread_since: datetime | None = Field(default=None, sa_type=UtcTime)
    reread_at: datetime | None = Field(default=None, sa_type=UtcTime)
    reread_fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    # The attempts that may commit another reading of a complete slice: a requested one, and a sweep. Of a sweep that
    # has failed, the activity that recorded it.
    reread_holder: str | None = Field(default=None, sa_type=Text)
    sweep_holder: str | None = Field(default=None, sa_type=Text)
    # When the alarm about its duration was sent, null once it has ended; and the activity that decided so.
    stale_told_at: datetime | None = Field(default=None, sa_type=UtcTime)
    stale_alarm_by: str | None = Field(default=None, sa_type=Text)


class OrderBackfill(TableRow, table=True):
    """A time whose complete slices are read again: who asked, its progress and its end."""

    __tablename__ = "order_backfills"
    __table_args__ = (
        CheckConstraint(_KNOWN_BACKFILL_STATE, name="state"),
        Index("ix_order_backfills_platform_asked_at", "platform", text("asked_at DESC"), text("backfill_id DESC")),
        Index("ix_order_backfills_running", "platform", postgresql_where=text("state = 'running'")),
    )

    backfill_id: str = Field(primary_key=True, sa_type=Text)
    platform: str = Field(
        sa_type=Text, sa_column_args=[ForeignKey("order_platforms.platform", ondelete="CASCADE")], nullable=False
    )
    workflow_id: str = Field(sa_type=Text)
    asked_by: str = Field(sa_type=Text)
    asked_at: datetime = Field(sa_type=UtcTime)
    start_at: datetime = Field(sa_type=UtcTime)
    end_at: datetime = Field(sa_type=UtcTime)
    state: str = Field(sa_type=Text)
    # Complete slices of the time when it began; those read again, and those that failed.
    slices: int = 0
    read: int = 0
    failed: int = 0
    read_to: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    # The activity that closed it: repeated, it returns the alarm again.
    closed_by: str | None = Field(default=None, sa_type=Text)


class Order(TableRow, table=True):
    """The newest copy of an order, its JSON text as the platform sent it."""

    __tablename__ = "orders"
    __table_args__ = (
        Index("ix_orders_platform_modified_at", "platform", text("modified_at DESC"), text("order_id DESC")),
    )

    platform: str = Field(primary_key=True, sa_type=Text)
    shop: str = Field(primary_key=True, sa_type=Text)
    order_id: str = Field(primary_key=True, sa_type=Text)
    modified_at: datetime = Field(sa_type=UtcTime)
    version: int = Field(sa_type=BigInteger)
    digest: bytes = Field(sa_type=LargeBinary)
    raw: str = Field(sa_type=Text)
    asked_at: datetime = Field(sa_type=UtcTime)
    revision: int = Field(sa_type=BigInteger)


class ReplacedOrderRevision(TableRow, table=True):
    """A copy of an order that a newer one replaced: kept for exports that refer to an earlier mark."""

    __tablename__ = "order_copies"
    __table_args__ = (Index("ix_order_copies_replaced_at", "replaced_at"),)

    platform: str = Field(primary_key=True, sa_type=Text)
    shop: str = Field(primary_key=True, sa_type=Text)
    order_id: str = Field(primary_key=True, sa_type=Text)
    revision: int = Field(primary_key=True, sa_type=BigInteger)
    until_revision: int = Field(sa_type=BigInteger)
    modified_at: datetime = Field(sa_type=UtcTime)
    version: int = Field(sa_type=BigInteger)
    raw: str = Field(sa_type=Text)
    replaced_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))
