"""Downloads: what a request may say, how pages are planned, read, encoded and joined."""
