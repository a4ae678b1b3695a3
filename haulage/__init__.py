"""What others install: the typed client of a Haulage API."""
