"""Transfers beside the design that they come from: joins by the ten thousand in one window, counted at both ends."""
