"""Worlds of orders: platforms that change, page and fail as real ones do, and a store that is held against them."""
