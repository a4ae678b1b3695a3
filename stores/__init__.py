"""Data access: what reads and writes tables, one package a system."""
