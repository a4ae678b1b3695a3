"""Orders: the plans of a cycle, of a slice, of a backfill, of a day's report, and of the watch over platforms."""

from workflows.orders.backfill import OrderBackfill
from workflows.orders.cycle import OrderCycle
from workflows.orders.report import OrderReport
from workflows.orders.slice import OrderSlice
from workflows.orders.watch import OrderWatch

__all__ = ["OrderBackfill", "OrderCycle", "OrderReport", "OrderSlice", "OrderWatch"]
