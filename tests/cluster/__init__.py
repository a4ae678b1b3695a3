"""Faults of whole hosts and of their network, under load of all systems, in the lab: `make cluster`."""
