"""A stand-in for the four modules that keep addresses, with real tables and faults by scenario."""
