"""The writers of Excel books: each writes the same table into one book, on one core."""
