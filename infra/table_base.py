"""What all tables share: names for constraints that migrations can rely on, and times that are UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, MetaData
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Row(SQLModel):
    """The base of every table."""

    metadata = MetaData(naming_convention=NAMES)


class UtcTime(TypeDecorator[datetime]):
    """A `timestamptz`: a moment, never a wall clock's reading, and UTC when it is read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time that does not say where its clock hangs."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone. Write it as UTC, like datetime.now(UTC).")
        return value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The same moment, told in UTC."""
        return None if value is None else value.astimezone(UTC)
