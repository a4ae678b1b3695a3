"""What the checks of `haulage doctor` share: their failure, and a database whose failures are such."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.faults import Fault
from infra.database import DATABASE_ERRORS, Database
from infra.settings import Settings


class CheckFailed(Exception):
    """A failed check: what was found, and the remedy."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{_add_full_stop(found)} {remedy}".rstrip())


def _add_full_stop(found: str) -> str:
    """Return a message of a library with its full stop."""
    return found if found.endswith((".", "!", "?")) else f"{found}."


@asynccontextmanager
async def open_database_for_check(settings: Settings) -> AsyncIterator[Database]:
    """Open the database; raise CheckFailed where it does not answer, or has another revision."""
    database = Database(settings.database)
    try:
        yield database
    except Fault as fault:
        raise CheckFailed(fault.record.message, fault.record.hint) from fault
    except DATABASE_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise CheckFailed(
            f"PostgreSQL does not answer: {reason}", "Start it, or correct HAULAGE_DATABASE__URL."
        ) from error
    finally:
        await database.close()
