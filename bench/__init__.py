"""Side-by-side measurements against peers."""
