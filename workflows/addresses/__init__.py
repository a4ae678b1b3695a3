"""Addresses: the plans of intake and of cycles."""

from workflows.addresses.intake import AddressIntake

__all__ = ["AddressIntake"]
