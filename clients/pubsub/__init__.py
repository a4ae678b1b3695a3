"""Google Pub/Sub: pulling and acknowledging over its REST interface, and knowing its pushes by their tokens."""

from clients.pubsub.client import PubSub
from clients.pubsub.envelopes import Received
from clients.pubsub.signers import NotPubSub, Signers
from clients.pubsub.tokens import PubSubFailure

__all__ = ["NotPubSub", "PubSub", "PubSubFailure", "Received", "Signers"]
