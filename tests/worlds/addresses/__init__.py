"""Worlds of addresses: messages in every order, modules that fail, and operators."""
