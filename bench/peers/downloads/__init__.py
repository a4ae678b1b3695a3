"""The peers of the download center: each writes all rows of a paged source into CSV files."""
