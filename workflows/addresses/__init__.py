"""Addresses: the plans of intake, of cycles, and of what is done beside them."""

from workflows.addresses.cycle import AddressCycle
from workflows.addresses.intake import AddressIntake
from workflows.addresses.upkeep import AddressCheck, AddressDrift, AddressPurge

__all__ = ["AddressCheck", "AddressCycle", "AddressDrift", "AddressIntake", "AddressPurge"]
