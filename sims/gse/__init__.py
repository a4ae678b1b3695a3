"""A stand-in for GSE: its four calls, real files on targets, faults by scenario, and counts of calls."""
