"""What a process is made of: stores and clients, opened and closed together."""
