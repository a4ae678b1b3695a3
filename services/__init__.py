"""Services: stores and clients of a process, opened and closed together."""
