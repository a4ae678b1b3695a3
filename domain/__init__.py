"""Pure models and rules: no I/O, no clock, no engine."""

VERSION = "0.1.0"
"""The version of the server, of its API and of the clients; the build of the wheel reads it here."""
