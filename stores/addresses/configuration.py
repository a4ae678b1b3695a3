"""The versions of what operators set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlmodel import col, select

from domain.addresses.config import Options
from infra.database import Session
from stores.tables.addresses import AddressSetting


@dataclass(frozen=True, slots=True)
class Version:
    """What one version sets; 0 sets nothing."""

    version: int
    options: Options


UNSET: Final = Version(0, Options())


async def newest(session: Session) -> Version:
    """The newest version."""
    statement = select(AddressSetting).order_by(col(AddressSetting.version).desc()).limit(1)
    return version_of((await session.exec(statement)).one_or_none())


def version_of(row: AddressSetting | None) -> Version:
    return UNSET if row is None else Version(row.version or 0, Options.model_validate(row.options))
