"""The four modules that keep addresses, on real tables, with faults to order."""
