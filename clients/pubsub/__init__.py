"""Google Pub/Sub: a client that pulls and acknowledges over its REST interface, and a verifier of push tokens."""

from clients.pubsub.authentication import InvalidPushToken, PubSubFailure, PushTokenVerifier
from clients.pubsub.client import PubSubClient, ReceivedMessage

__all__ = ["InvalidPushToken", "PubSubClient", "PubSubFailure", "PushTokenVerifier", "ReceivedMessage"]
