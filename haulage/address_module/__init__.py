"""The contract of a module that keeps addresses, as a sub-application for aiohttp."""

from haulage.address_module.addresses import AddressStore, AddressTable, PageTooLarge
from haulage.address_module.database import MYSQL, POSTGRESQL, SQLITE, Connection, Cursor, Dialect, Transaction
from haulage.address_module.executor import HasInFlightOrders
from haulage.address_module.handler import build_address_module
from haulage.address_module.models import (
    AddressEntry,
    Operation,
    OperationKind,
    OperationOutcome,
    OperationResult,
)
from haulage.address_module.tables import build_create_table_statements

__all__ = [
    "MYSQL",
    "POSTGRESQL",
    "SQLITE",
    "AddressEntry",
    "AddressStore",
    "AddressTable",
    "Connection",
    "Cursor",
    "Dialect",
    "HasInFlightOrders",
    "Operation",
    "OperationKind",
    "OperationOutcome",
    "OperationResult",
    "PageTooLarge",
    "Transaction",
    "build_address_module",
    "build_create_table_statements",
]
