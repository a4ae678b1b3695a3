"""The tables, one module a system."""
