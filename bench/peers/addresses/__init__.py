"""The peers of addresses: who moves a log of messages into four modules without a cycle."""
