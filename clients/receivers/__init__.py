"""The receivers of webhooks: addresses that users give, told of events."""

from clients.receivers.client import ReceiverClient

__all__ = ["ReceiverClient"]
