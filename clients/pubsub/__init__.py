"""Google Pub/Sub: a client that pulls and acknowledges over its REST interface, and a verifier of push tokens."""

from clients.pubsub.client import PubSubClient, ReceivedMessage
from clients.pubsub.push_tokens import InvalidPushToken, PushTokenVerifier
from clients.pubsub.tokens import PubSubFailure

__all__ = ["InvalidPushToken", "PubSubClient", "PubSubFailure", "PushTokenVerifier", "ReceivedMessage"]
