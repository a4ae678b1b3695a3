"""A stand-in for GSE: its four calls with real bytes delivered, every fault on order, and counts of what came."""
