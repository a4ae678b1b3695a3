"""What limits are counted in: spending that comes back, leases on slots, and shares of what processes divide."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Text
from sqlmodel import Field

from infra.table_base import Row, UtcTime


class Spending(Row, table=True):
    """What was spent of a bucket and comes back at one moment."""

    __tablename__ = "limit_spending"

    bucket: str = Field(primary_key=True, sa_type=Text)
    returns_at: datetime = Field(primary_key=True, sa_type=UtcTime, index=True)
    amount: int = Field(sa_type=BigInteger)


class Lease(Row, table=True):
    """One slot, held until it is released or expires."""

    __tablename__ = "limit_leases"

    key: str = Field(primary_key=True, sa_type=Text)
    holder: str = Field(primary_key=True, sa_type=Text)
    expires_at: datetime = Field(sa_type=UtcTime, index=True)


class Share(Row, table=True):
    """What one process holds of the permits that all divide, and what it could use."""

    __tablename__ = "limit_shares"

    key: str = Field(primary_key=True, sa_type=Text)
    holder: str = Field(primary_key=True, sa_type=Text)
    permits: int
    demand: int
    since: datetime = Field(sa_type=UtcTime)
    expires_at: datetime = Field(sa_type=UtcTime, index=True)
