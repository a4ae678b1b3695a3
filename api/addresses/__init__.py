"""Addresses at the door: what Pub/Sub pushes, and what operators look at and do."""

# Each module declares its routes when it is imported.
from api.addresses import configuring, cycle, drift, events, figures, logical, messages, overview, quarantine, steering
from api.addresses.room import routes

__all__ = [
    "configuring",
    "cycle",
    "drift",
    "events",
    "figures",
    "logical",
    "messages",
    "overview",
    "quarantine",
    "routes",
    "steering",
]
