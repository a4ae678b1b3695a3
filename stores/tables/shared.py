"""What no system owns alone: projects with keys, the audit log, payload keys, and webhooks with their deliveries."""

from __future__ import annotations

from datetime import datetime

from pydantic import JsonValue
from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    SmallInteger,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field

from infra.database import TableRow, UtcTime
from stores.tables import SEALED

DELIVERY_STATES = ("pending", "succeeded", "failed", "disabled")
_KNOWN_DELIVERY_STATE = "state IN ({})".format(", ".join(f"'{state}'" for state in DELIVERY_STATES))


class Project(TableRow, table=True):
    """A tenant: it owns keys, quotas, and everything that is created with its keys."""

    __tablename__ = "projects"

    project_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    name: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # Those that differ from the settings.
    quotas: dict[str, int] = Field(
        default={}, sa_column=Column(JSONB, nullable=False, server_default=text("'{}'::jsonb"))
    )


class SchemaRevision(TableRow, table=True):
    """A migration that the database has had. Versions of the code that do not know it read whether they work on it."""

    __tablename__ = "schema_revisions"

    revision: str = Field(primary_key=True, sa_type=Text)
    oldest_code: str = Field(sa_type=Text)
    migrated_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})


class ApiKey(TableRow, table=True):
    """A key of a project: found by its id, verified by the HMAC-SHA256 of its secret under the pepper."""

    __tablename__ = "api_keys"

    key_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    secret_hash: bytes = Field(sa_type=LargeBinary, sa_column_kwargs={"name": "hash"}, unique=True)
    pepper_id: str | None = Field(default=None, sa_type=Text)
    last4: str | None = Field(default=None, sa_type=Text)
    name: str | None = Field(default=None, sa_type=Text)
    key_right: str = Field(sa_type=Text)
    systems: list[str] | None = Field(default=None, sa_type=ARRAY(Text))
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcTime)


class IdempotencyKey(TableRow, table=True):
    """An idempotency key of a project, the fingerprint of its first request, and the download that this created."""

    __tablename__ = "idempotency_keys"

    project_id: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    fingerprint: bytes = Field(sa_type=LargeBinary)
    task_id: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()}, index=True)


class AuditEntry(TableRow, table=True):
    """An action of a caller. The row is written before the action; its status is null if the process ended within."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index("ix_audit_log_happened_at_id", "happened_at", "id"),
        Index("ix_audit_log_project_id_happened_at_id", "project_id", "happened_at", "id"),
        Index("ix_audit_log_actor_happened_at_id", "actor", "happened_at", "id"),
        Index("ix_audit_log_action_happened_at_id", "action", "happened_at", "id"),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    happened_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})
    project_id: str | None = Field(default=None, sa_type=Text)
    actor: str = Field(sa_type=Text)
    action: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    who: str | None = Field(default=None, sa_type=Text)
    reason: str | None = Field(default=None, sa_type=Text)
    request_id: str = Field(sa_type=Text)
    given: dict[str, JsonValue] | None = Field(default=None, sa_type=JSONB)
    status: int | None = Field(default=None, sa_type=SmallInteger)
    code: str | None = Field(default=None, sa_type=Text)


class PayloadKeyUse(TableRow, table=True):
    """A key that what goes through Temporal was encrypted with, by its id."""

    __tablename__ = "payload_keys"

    key_id: str = Field(primary_key=True, sa_type=Text)
    first_used_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})


class WorkerHeartbeatRow(TableRow, table=True):
    """The last heartbeat of a worker process, and the task queues that it serves."""

    __tablename__ = "worker_heartbeats"

    identity: str = Field(primary_key=True, sa_type=Text)
    queues: list[str] = Field(sa_type=ARRAY(Text))
    seen_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})


class SystemPauseRow(TableRow, table=True):
    """A system that begins nothing until it is resumed, or `tasks/` and a type of tasks that is paused by itself."""

    __tablename__ = "system_pauses"

    system: str = Field(primary_key=True, sa_type=Text)
    paused_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})
    who: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)


class WebhookSecret(TableRow, table=True):
    """A signing secret of a project, sealed. The current one never expires; the ones before it do."""

    __tablename__ = "webhook_secrets"
    __table_args__ = (
        Index("uq_webhook_secrets_current", "project_id", unique=True, postgresql_where=text("expires_at IS NULL")),
        Index("ix_webhook_secrets_project_id", "project_id"),
    )

    secret_id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")])
    sealed: str = Field(sa_type=Text, sa_column_kwargs={"info": SEALED})
    last4: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcTime)


class Delivery(TableRow, table=True):
    """One event for one receiver, as it was first written: every attempt and redelivery posts this body."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint(_KNOWN_DELIVERY_STATE, name="state"),
        Index("ix_webhook_deliveries_task_id_created_at", "owner_id", text("created_at DESC")),
        Index(
            "ix_webhook_deliveries_endpoint_disabled_at",
            "endpoint",
            "disabled_at",
            postgresql_where=text("disabled_at IS NOT NULL"),
        ),
        Index("ix_webhook_deliveries_pending_since", "pending_since", postgresql_where=text("finished_at IS NULL")),
        Index("ix_webhook_deliveries_finished_at", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    )

    delivery_id: str = Field(primary_key=True, sa_type=Text)
    project_id: str = Field(sa_type=Text)
    owner_system: str = Field(sa_column=Column("owner_system", Text, nullable=False, server_default="downloads"))
    # The column keeps the name by which the version before reads and writes it while both run.
    owner_id: str = Field(sa_column=Column("task_id", Text, key="owner_id", nullable=False))
    event_type: str = Field(sa_type=Text)
    body: str = Field(sa_type=Text)
    url: str = Field(sa_type=Text, sa_column_kwargs={"info": SEALED})
    receiver: str = Field(sa_type=Text)  # host and port of the URL, which may be shown
    endpoint: bytes = Field(sa_type=LargeBinary)  # a digest that is the same for the same URL of the same project
    state: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    pending_since: datetime = Field(sa_type=UtcTime)  # later than created_at where a user had it sent again
    attempts: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # When the receiver answered 410, to this delivery or to the one that kept this from being sent; null once it has
    # accepted a redelivery. While one row of an address has it, the address is disabled.
    disabled_at: datetime | None = Field(default=None, sa_type=UtcTime)


class DeliveryAttempt(TableRow, table=True):
    """One attempt and how the receiver took it."""

    __tablename__ = "webhook_attempts"
    __table_args__ = (Index("ix_webhook_attempts_delivery_id", "delivery_id", text("attempt_id DESC")),)

    attempt_id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    delivery_id: str = Field(
        sa_type=Text, sa_column_args=[ForeignKey("webhook_deliveries.delivery_id", ondelete="CASCADE")]
    )
    started_at: datetime = Field(sa_type=UtcTime)
    duration_seconds: float
    status: int | None = None
    error: str | None = Field(default=None, sa_type=Text)
