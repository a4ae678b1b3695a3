"""Defects that the suite must notice."""
