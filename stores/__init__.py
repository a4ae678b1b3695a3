"""Data access: all SQL, one package a system."""
