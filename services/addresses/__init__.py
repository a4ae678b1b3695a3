"""What intake and cycles of addresses share beyond one step."""
