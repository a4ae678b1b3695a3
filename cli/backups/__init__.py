"""Backups of an installation: made, restored, and reconciled with what is there."""
