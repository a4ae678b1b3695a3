"""Google Pub/Sub: pulling and acknowledging over its REST interface, and knowing its pushes by their tokens."""

from clients.pubsub.client import PubSub, PubSubFailure
from clients.pubsub.envelopes import Received
from clients.pubsub.signers import NotPubSub, Signers

__all__ = ["NotPubSub", "PubSub", "PubSubFailure", "Received", "Signers"]
