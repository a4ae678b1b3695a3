"""Worlds: a seed makes the other side's behaviour and a request's options; what comes out is held against the truth."""
