"""The contract of a module that keeps addresses, ready to mount into an aiohttp application."""

from haulage.address_module.addresses import Addresses, AddressTable
from haulage.address_module.applying import HasInFlightOrders
from haulage.address_module.database import MYSQL, POSTGRESQL, SQLITE, Connection, Cursor, Dialect, Transaction
from haulage.address_module.handler import address_module
from haulage.address_module.models import AddressEntry, Operation, OperationKind, OperationOutcome, OperationResult
from haulage.address_module.tables import table_statements

__all__ = [
    "MYSQL",
    "POSTGRESQL",
    "SQLITE",
    "AddressEntry",
    "AddressTable",
    "Addresses",
    "Connection",
    "Cursor",
    "Dialect",
    "HasInFlightOrders",
    "Operation",
    "OperationKind",
    "OperationOutcome",
    "OperationResult",
    "Transaction",
    "address_module",
    "table_statements",
]
