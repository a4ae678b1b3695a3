"""The tables, one module a room."""
