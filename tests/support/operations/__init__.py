"""The tables of `docs/how-to/operate.md`: what an operator can do to each object, and what can stand still.

`python -m tests.support.operations` writes both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tests.support.operations.addresses import ADDRESS_OPERATIONS
from tests.support.operations.cells import Cell, NotOffered, Operation, Row
from tests.support.operations.files import FILE_OPERATIONS
from tests.support.operations.orders import ORDER_OPERATIONS
from tests.support.operations.standstills import OVERVIEW_LINES, STANDSTILLS
from tests.support.operations.tasks import TASK_OPERATIONS

OPERATIONS: Final[Mapping[str, Row]] = {**FILE_OPERATIONS, **ORDER_OPERATIONS, **ADDRESS_OPERATIONS, **TASK_OPERATIONS}


def iterate_operations() -> Iterator[Operation]:
    """Yield every operation of the table."""
    for row in OPERATIONS.values():
        yield from (each for each in row.values() if isinstance(each, Operation))


def iterate_cells() -> Iterator[Cell]:
    """Yield every cell of both tables that is not a name."""
    for row in OPERATIONS.values():
        yield from (each for each in row.values() if isinstance(each, NotOffered))
    for operation in iterate_operations():
        yield from (
            operation.one,
            operation.many,
            operation.filtered,
            operation.dry_run,
            operation.console,
            operation.command,
        )
    yield from (each for each in OVERVIEW_LINES.values() if isinstance(each, NotOffered))
    for standstill in STANDSTILLS:
        yield from (
            each
            for each in (standstill.metric, standstill.alert, standstill.action, standstill.page)
            if isinstance(each, NotOffered)
        )
        if not isinstance(standstill.action, NotOffered):
            yield standstill.action
