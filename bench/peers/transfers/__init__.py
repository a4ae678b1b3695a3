"""The peer of transfers: the design that they were asked for in, as its document describes it."""
