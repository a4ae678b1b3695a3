"""Excel books beside their peers' books: the same cells, read back and proved equal before they count."""
