"""Addresses: the plans of intake and of cycles."""

from workflows.addresses.cycle import AddressCycle
from workflows.addresses.intake import AddressIntake

__all__ = ["AddressCycle", "AddressIntake"]
