"""Excel: what a book of a download looks like, and how it is drawn."""
