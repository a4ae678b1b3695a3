"""Google Pub/Sub: pulling and acknowledging over its REST interface, and knowing its pushes by their tokens."""

from infra.pubsub.client import Message, PubSub, PubSubFailure, Received
from infra.pubsub.signers import NotPubSub, Signers

__all__ = ["Message", "NotPubSub", "PubSub", "PubSubFailure", "Received", "Signers"]
