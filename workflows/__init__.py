"""Workflows: deterministic orchestration, one package a system."""
