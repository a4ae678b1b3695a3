"""Changes of addresses beside their peers: one stream of messages, four modules, and what they have in the end."""
